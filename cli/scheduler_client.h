// What the command line asks of a scheduler. Every call gives up after a short while.
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

// The job is done, failed or stopped.
bool HasEnded(const wire::GetStatusReply& status);

// Who a call's failure is from, and its words: the scheduler has refused, or the connection to it has failed.
std::string WhoSays(const std::string& address, const absl::Status& failed);

// Thread-safety: safe.
class SchedulerClient {
 public:
  // `address` is host:port. Connects on first use. `protection`: null for plain text.
  SchedulerClient(const std::string& address, const std::shared_ptr<const rpc::Protection>& protection);

  // `full`: also what the status page shows.
  absl::StatusOr<wire::GetStatusReply> GetStatus(absl::Duration timeout, bool full = false);
  // Asks for the end of the run in good order.
  absl::Status StopJob(const std::string& reason, bool failed);
  // Has a checkpoint made; returns its number.
  absl::StatusOr<uint64_t> Checkpoint(const std::string& reason);
  // Returns how many servers the job is to have.
  absl::StatusOr<uint32_t> ChangeServers(const wire::ChangeServersRequest& request);
  // Says that a process has ended, so that nobody waits for its heartbeats to stop.
  absl::Status ReportExit(uint64_t job, wire::MemberRole role, const std::string& name, const std::string& reason);

 private:
  std::unique_ptr<wire::Scheduler::Stub> stub() const { return wire::Scheduler::NewStub(channel_.channel()); }
  // Makes a call, and again while no connection was made in time, which happens on a machine that is very busy.
  absl::Status Call(absl::Duration timeout, const std::function<grpc::Status(grpc::ClientContext*)>& call);
  // For the next call, after this one; marks for WhoSays() what the connection says.
  absl::Status Ended(const grpc::Status& status);

  rpc::FollowedChannel channel_;
};

}  // namespace slackline::cli
