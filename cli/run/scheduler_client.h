// Calls of the command line to a scheduler. Every call gives up after a short while.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/followed_channel.h"
#include "scheduler.grpc.pb.h"

namespace slackline::cli {

// True if the job is done, failed or stopped.
bool HasEnded(const wire::GetStatusReply& status);

// Describes a failed call: whether the scheduler has refused, or the connection to it has failed, and the error's text.
std::string WhoSays(const std::string& address, const absl::Status& failed);

// Calls one scheduler.
//
// Thread-safety: safe.
class SchedulerClient {
 public:
  // `address` is HOST:PORT, or a file that holds it. The first call connects. `protection`: null for plain text.
  SchedulerClient(const std::string& address, const std::shared_ptr<const rpc::Protection>& protection);

  // `full`: also returns what the status page shows.
  absl::StatusOr<wire::GetStatusReply> GetStatus(absl::Duration timeout, bool full = false);
  // Asks the scheduler to end the run in good order. `failed`: the job counts as failed, not as stopped.
  absl::Status StopJob(const std::string& reason, bool failed);
  // Asks the scheduler for a checkpoint; returns its number.
  absl::StatusOr<uint64_t> Checkpoint(const std::string& reason);
  // Changes the servers; returns how many servers the job is to have.
  absl::StatusOr<uint32_t> ChangeServers(const wire::ChangeServersRequest& request);
  // Reports that a process has ended, so that the scheduler need not wait until its heartbeats are missed.
  // `announced`: true if the caller has told people itself.
  absl::Status ReportExit(uint64_t job, wire::MemberRole role, const std::string& name, const std::string& reason,
                          bool announced);

 private:
  std::unique_ptr<wire::Scheduler::Stub> stub() const { return wire::Scheduler::NewStub(channel_.channel()); }
  // Makes a call. Repeats it as long as no connection is made in time, which happens on a very busy machine.
  absl::Status Call(absl::Duration timeout, const std::function<grpc::Status(grpc::ClientContext*)>& call);
  // Ends a call: prepares the channel for the next one, and marks connection failures for WhoSays().
  absl::Status Ended(const grpc::Status& status);

  rpc::FollowedChannel channel_;
};

}  // namespace slackline::cli
