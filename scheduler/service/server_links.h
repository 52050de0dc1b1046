// Calls of the scheduler to the servers over gRPC: one thread for each server, so that a slow server delays no other.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/followed_channel.h"
#include "common/time/timeouts.h"
#include "parameter_server.grpc.pb.h"
#include "scheduler/base/server_calls.h"

namespace slackline::scheduler {

// Sends one server its shards and members, shards before members, and repeats each call until the server answers.
//
// Thread-safety: safe. The observer is called by the link's thread, without a lock.
// Threads:       one, from construction to destruction.
class ServerLink {
 public:
  ServerLink(ServerRef server, std::string name, const std::string& address,
             const std::shared_ptr<const rpc::Protection>& protection, absl::Duration call_timeout,
             ServerObserver& observer);
  // Cancels the call in flight.
  ~ServerLink();

  void Install(const wire::InstallShardsRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  void SetMembers(const wire::SetMembersRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  void TakeShards(const wire::TakeShardsRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  void BeginCheckpoint(const wire::BeginCheckpointRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  void Stop(const wire::StopRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  // Stops all work; the link's thread ends soon.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

  ServerRef server() const { return server_; }

 private:
  std::unique_ptr<wire::ParameterServerControl::Stub> stub() const {
    return wire::ParameterServerControl::NewStub(channel_.channel());
  }
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits after a failed attempt, or reports that trying again is useless. Returns false if the link is done.
  bool BackOff(const absl::Status& status, absl::Duration back_off) ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes one attempt at the most urgent wish.
  absl::Status TryNext() ABSL_LOCKS_EXCLUDED(mutex_);
  // Each of these makes one attempt at one wish, and forgets the wish once it is answered.
  absl::Status TryInstall(const wire::InstallShardsRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status TryMembers(const wire::SetMembersRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status TryTake(const wire::TakeShardsRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status TryCheckpoint(const wire::BeginCheckpointRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status TryStop(const wire::StopRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs `call` with a context that Close() can cancel.
  template <typename Call>
  absl::Status Attempt(const Call& call) ABSL_LOCKS_EXCLUDED(mutex_);

  const ServerRef server_;
  const std::string name_;
  const absl::Duration call_timeout_;
  ServerObserver& observer_;
  rpc::FollowedChannel channel_;

  absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool installed_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<wire::InstallShardsRequest> install_ ABSL_GUARDED_BY(mutex_);
  std::optional<wire::TakeShardsRequest> take_ ABSL_GUARDED_BY(mutex_);
  std::optional<wire::SetMembersRequest> members_ ABSL_GUARDED_BY(mutex_);
  std::optional<wire::BeginCheckpointRequest> checkpoint_ ABSL_GUARDED_BY(mutex_);
  std::optional<wire::StopRequest> stop_ ABSL_GUARDED_BY(mutex_);
  grpc::ClientContext* in_flight_ ABSL_GUARDED_BY(mutex_) = nullptr;

  std::thread thread_;
};

// Links to all servers.
//
// Thread-safety: safe.
// Threads:       those of its links.
class ServerLinks : public ServerCalls {
 public:
  // `protection`: protects the calls to servers; null for plain text.
  explicit ServerLinks(const Timeouts& timeouts, std::shared_ptr<const rpc::Protection> protection = nullptr);
  ~ServerLinks() override { Close(); }

  void Connect(ServerRef server, const std::string& name, const std::string& address, ServerObserver& observer) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Disconnect(ServerRef server) override;
  void Install(ServerRef server, const wire::InstallShardsRequest& request) override ABSL_LOCKS_EXCLUDED(mutex_);
  void SetMembers(ServerRef server, const wire::SetMembersRequest& request) override ABSL_LOCKS_EXCLUDED(mutex_);
  void TakeShards(ServerRef server, const wire::TakeShardsRequest& request) override ABSL_LOCKS_EXCLUDED(mutex_);
  void BeginCheckpoint(ServerRef server, const wire::BeginCheckpointRequest& request) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Stop(ServerRef server, const wire::StopRequest& request) override ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends all threads; no observer is called afterwards. Must not be called with a lock that an observer takes.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  ServerLink* Find(ServerRef server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const absl::Duration call_timeout_;
  const std::shared_ptr<const rpc::Protection> protection_;
  absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::pair<ServerId, Incarnation>, std::unique_ptr<ServerLink>> links_ ABSL_GUARDED_BY(mutex_);
  // Links to earlier lives: closed, and joined at the end, since their thread may be waiting for the observer's lock.
  std::vector<std::unique_ptr<ServerLink>> old_links_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slackline::scheduler
