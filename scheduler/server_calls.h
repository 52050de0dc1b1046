// How the scheduler calls the parameter servers: wishes out, outcomes back. The real one is ServerLinks; tests have
// their own.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "parameter_server.pb.h"

namespace slackline::scheduler {

// One life of a server.
struct ServerRef {
  ServerId server;
  Incarnation incarnation;

  friend bool operator==(const ServerRef&, const ServerRef&) = default;
};

// Hears how the calls went.
class ServerObserver {
 public:
  virtual ~ServerObserver() = default;

  virtual void Installed(ServerRef server) = 0;
  virtual void MembersInstalled(ServerRef server, const wire::SetMembersReply& reply) = 0;
  virtual void Stopped(ServerRef server) = 0;
  // What the server has answered, an error included: no checkpoint is worth the job.
  virtual void CheckpointBegun(ServerRef server, const wire::BeginCheckpointRequest& request,
                               const absl::StatusOr<wire::BeginCheckpointReply>& reply) = 0;
  // The server will not take the shards; whatever it does else goes on.
  virtual void TakeRefused(ServerRef server, const wire::TakeShardsRequest& request, const absl::Status& status) = 0;
  // The server answered with a code after which trying again is useless.
  virtual void Refused(ServerRef server, const absl::Status& status) = 0;
};

// Each call notes a wish and returns at once; it never calls the observer back from within. A wish is repeated until
// the server has answered it, a later one of its kind has replaced it, or the server was connected anew. Wishes for
// a life that is not the latest one are ignored.
class ServerCalls {
 public:
  virtual ~ServerCalls() = default;

  // A life of a server is reached at `address`. A server may have several: it and its backup. Outcomes go to
  // `observer`.
  virtual void Connect(ServerRef server, const std::string& name, const std::string& address,
                       ServerObserver& observer) = 0;
  // That life is over: wishes for it are forgotten.
  virtual void Disconnect(ServerRef server) = 0;
  virtual void Install(ServerRef server, const wire::InstallShardsRequest& request) = 0;
  // Kept until the shards are installed.
  virtual void SetMembers(ServerRef server, const wire::SetMembersRequest& request) = 0;
  // Before shards are installed.
  virtual void TakeShards(ServerRef server, const wire::TakeShardsRequest& request) = 0;
  // After the members.
  virtual void BeginCheckpoint(ServerRef server, const wire::BeginCheckpointRequest& request) = 0;
  virtual void Stop(ServerRef server, const wire::StopRequest& request) = 0;
};

}  // namespace slackline::scheduler
