// A server's connection to its scheduler: registers, sends heartbeats, and ends the process if the connection breaks.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/process/steady_flag.h"
#include "common/rpc/followed_channel.h"
#include "common/time/clock.h"
#include "common/time/timeouts.h"
#include "ps/service/sequencer.h"
#include "scheduler.grpc.pb.h"

namespace slackline::ps {

struct RegistrationOptions {
  // Place of the scheduler, in the form that rpc::FollowedChannel takes.
  std::string scheduler;
  // Protection of calls to the scheduler; null for plain text.
  std::shared_ptr<const rpc::Protection> protection = nullptr;
  std::string name;
  // Address at which others reach this server, as host:port.
  std::string address;
  uint64_t job_fingerprint = 0;
  // Address for processes on this host: Sequencer::local().
  wire::LocalAddress local;
  // Address of the Prometheus endpoint, as host:port; empty if there is none.
  std::string metrics_address = "";
  Timeouts timeouts;
  // Silence of the scheduler after which the connection counts as broken.
  absl::Duration scheduler_silence_max = absl::Seconds(5);
  // Callback when the scheduler has accepted this server: once, on the registration's thread. May be null.
  std::function<void()> on_registered = nullptr;
  // Callback when there is no more reason to serve: once, on the registration's thread. OK if the scheduler told the
  // server to leave, else the error. Must not block.
  std::function<void(const absl::Status& status)> on_end;
};

// Registers the server and sends its heartbeats.
//
// Thread-safety: safe.
// Threads:       one, born in the constructor, joined in the destructor. The destructor waits for a call in flight. The
//                deadline of a call is 16 heartbeats to register; afterwards at most 3 heartbeats.
// Ownership:     borrows the sequencer.
class Registration {
 public:
  Registration(RegistrationOptions options, Sequencer& sequencer);
  ~Registration();

  // Returns true once the scheduler has said that the job has ended.
  bool job_ended() const { return job_ended_; }

 private:
  void Run();
  //   kUnavailable, kDeadlineExceeded, kResourceExhausted  the scheduler did not accept it within timeouts.startup
  absl::Status Register();
  // Sends one heartbeat. Returns true if the scheduler tells the server to leave.
  absl::StatusOr<bool> Beat();
  // Sends heartbeats until the connection ends.
  absl::Status BeatUntilEnd();
  std::unique_ptr<wire::Scheduler::Stub> stub() const { return wire::Scheduler::NewStub(scheduler_.channel()); }
  bool Stopped(absl::Duration wait) { return stop_.Await(wait); }

  const RegistrationOptions options_;
  Sequencer& sequencer_;
  rpc::FollowedChannel scheduler_;
  const SteadyTime time_;
  SteadyFlag stop_;
  std::atomic<bool> job_ended_ = false;
  // Members that only the thread uses:
  wire::RegisterServerReply self_;
  ShardTable::Progress progress_;
  std::string leave_reason_;

  std::thread thread_;
};

}  // namespace slackline::ps
