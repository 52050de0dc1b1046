// Interface of the scheduler's calls to the parameter servers: wishes go out, outcomes come back. ServerLinks makes the
// real calls; tests have their own implementations.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "parameter_server.pb.h"

namespace slackline::scheduler {

// A server in one of its lives.
struct ServerRef {
  ServerId server;
  Incarnation incarnation;

  friend bool operator==(const ServerRef&, const ServerRef&) = default;
};

// Receives the outcomes of the calls.
class ServerObserver {
 public:
  virtual ~ServerObserver() = default;

  virtual void Installed(ServerRef server, const wire::InstallShardsReply& reply) = 0;
  virtual void MembersInstalled(ServerRef server, const wire::SetMembersReply& reply) = 0;
  virtual void Stopped(ServerRef server) = 0;
  // Reports the server's answer, an error included: a failed checkpoint must not end the job.
  virtual void CheckpointBegun(ServerRef server, const wire::BeginCheckpointRequest& request,
                               const absl::StatusOr<wire::BeginCheckpointReply>& reply) = 0;
  // Reports that the server will not take the shards; everything else that it does goes on.
  virtual void TakeRefused(ServerRef server, const wire::TakeShardsRequest& request, const absl::Status& status) = 0;
  // Reports an answer with a code after which trying again is useless.
  virtual void Refused(ServerRef server, const absl::Status& status) = 0;
};

// Sends calls to the servers. Each function notes a wish and returns at once; it never calls the observer from within.
// A wish is repeated until the server has answered it, a later wish of its kind has replaced it, or the server was
// connected anew. Wishes for a life that is not connected are ignored.
class ServerCalls {
 public:
  virtual ~ServerCalls() = default;

  // Connects to a life of a server at `address`. A server may have several lives: its own and its backup's. Outcomes go
  // to `observer`.
  virtual void Connect(ServerRef server, const std::string& name, const std::string& address,
                       ServerObserver& observer) = 0;
  // Forgets the wishes for this life, which is over.
  virtual void Disconnect(ServerRef server) = 0;
  virtual void Install(ServerRef server, const wire::InstallShardsRequest& request) = 0;
  // Gives the server the worker set; the wish is kept until the shards are installed.
  virtual void SetMembers(ServerRef server, const wire::SetMembersRequest& request) = 0;
  // Asks the server to take shards; goes out before shards are installed.
  virtual void TakeShards(ServerRef server, const wire::TakeShardsRequest& request) = 0;
  // Asks the server to begin a checkpoint; goes out after the members.
  virtual void BeginCheckpoint(ServerRef server, const wire::BeginCheckpointRequest& request) = 0;
  virtual void Stop(ServerRef server, const wire::StopRequest& request) = 0;
};

}  // namespace slackline::scheduler
