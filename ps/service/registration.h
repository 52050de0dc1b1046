// The server's tie to its scheduler: registers, sends heartbeats, and ends the process when the tie breaks.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/rpc/followed_channel.h"
#include "common/steady_flag.h"
#include "common/timeouts.h"
#include "ps/service/exchange.h"
#include "scheduler.grpc.pb.h"

namespace slackline::ps {

struct RegistrationOptions {
  // Where the scheduler is, as rpc::FollowedChannel has it.
  std::string scheduler;
  // Of calls to it; null for plain text.
  std::shared_ptr<const rpc::Protection> protection = nullptr;
  std::string name;
  // host:port that others reach this server at.
  std::string address;
  uint64_t job_fingerprint = 0;
  // As Exchange::local().
  wire::LocalAddress local;
  // host:port of the Prometheus endpoint; empty for none.
  std::string metrics_address = "";
  Timeouts timeouts;
  // Silence of the scheduler after which the tie is broken.
  absl::Duration scheduler_silence_max = absl::Seconds(5);
  // Called once, on the registration's thread, when the scheduler has taken this server. May be null.
  std::function<void()> on_registered = nullptr;
  // Called once, on the registration's thread, when there is no more reason to serve: OK when the scheduler said
  // leave, else what broke. Must not block.
  std::function<void(const absl::Status& status)> on_end;
};

// Thread-safety: safe.
// Threads:       one, born in the constructor, joined in the destructor (which waits for a call in flight: its
//                deadline is three heartbeats).
// Ownership:     borrows the exchange.
class Registration {
 public:
  Registration(RegistrationOptions options, Exchange& exchange);
  ~Registration();

  // The scheduler has said that the job has ended.
  bool job_ended() const { return job_ended_; }

 private:
  void Run();
  //   kUnavailable, kDeadlineExceeded, kResourceExhausted  the scheduler did not take it within timeouts.startup
  absl::Status Register();
  // One heartbeat. True when the scheduler says leave.
  absl::StatusOr<bool> Beat();
  // Heartbeats until the tie ends.
  absl::Status BeatUntilEnd();
  std::unique_ptr<wire::Scheduler::Stub> stub() const { return wire::Scheduler::NewStub(scheduler_.channel()); }
  bool Stopped(absl::Duration wait) { return stop_.Await(wait); }

  const RegistrationOptions options_;
  Exchange& exchange_;
  rpc::FollowedChannel scheduler_;
  const SteadyTime time_;
  SteadyFlag stop_;
  std::atomic<bool> job_ended_ = false;
  // The thread's.
  wire::RegisterServerReply self_;
  ShardTable::Progress progress_;
  std::string leave_reason_;

  std::thread thread_;
};

}  // namespace slackline::ps
