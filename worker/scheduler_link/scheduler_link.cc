#include "worker/scheduler_link/scheduler_link.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/protocol_version.h"
#include "common/log/logging.h"
#include "common/log/silence_notice.h"
#include "common/process/steady_flag.h"
#include "common/rpc/channel.h"
#include "common/rpc/followed_channel.h"
#include "common/time/backoff.h"
#include "common/time/clock.h"
#include "common/time/computing_watch.h"
#include "common/time/next_due.h"
#include "scheduler.grpc.pb.h"
#include "worker/scheduler_link/member_state.h"
#include "worker/scheduler_link/scheduler_wire.h"

namespace slackline::worker {
namespace {

// Never 0, which says that there is none.
uint64_t DrawInstance() {
  std::random_device random;
  return (uint64_t{random()} << 32 | random()) | 1;
}

// Parts of the period between heartbeats, one of which is a worker's delay at the beginning.
constexpr uint64_t kPhases = 1 << 20;

// Looks at the processor time in one span of `stall` before it says that a process hangs.
constexpr int kLooksPerStall = 8;

// The scheduler over gRPC.
class GrpcSchedulerLink : public SchedulerLink {
 public:
  explicit GrpcSchedulerLink(const Options& options)
      : options_(options),
        silence_max_(std::max(options.silence_max, options.timeouts.out_of_reach())),
        channel_(options.address, options.protection),
        member_(absl::StrCat("the scheduler at ", options.address), silence_max_),
        heartbeats_([this] { RunHeartbeats(); }) {}

  ~GrpcSchedulerLink() override {
    stop_.Raise();
    heartbeats_.join();
  }

  void set_on_end(OnEnd on_end) override {
    absl::MutexLock lock(&on_end_mutex_);
    on_end_ = std::move(on_end);
  }

  void set_on_map(OnMap on_map) override {
    absl::MutexLock lock(&on_end_mutex_);
    on_map_ = std::move(on_map);
  }

  absl::StatusOr<WorkerMembership> Join() override {
    wire::RegisterWorkerRequest request;
    {
      absl::MutexLock lock(&mutex_);
      request = MakeRegistration(options_, static_cast<uint32_t>(::getpid()), member_.life());
      member_.StopBeating();  // the old life ends here
    }
    request.set_instance(instance_);
    wire::RegisterWorkerReply reply;
    const absl::Status status =
        Call("register", &wire::Scheduler::Stub::RegisterWorker, request, &reply, options_.timeouts.startup);
    if (!status.ok()) return status;
    const ProtocolVersion theirs = ProtocolOf(reply);
    if (absl::Status speaks = CheckProtocol("the scheduler", theirs); !speaks.ok()) return speaks;
    if (options_.optimizer != nullptr && theirs.minor < kMinorOfScriptOptimizer) {
      return absl::UnimplementedError(absl::StrCat(
          "the script gives the optimizer, and the scheduler at ", options_.address, " speaks protocol ", theirs.major,
          ".", theirs.minor, ", which ignores that; allowed is ", theirs.major, ".", kMinorOfScriptOptimizer,
          " and newer: start a newer scheduler, or name the optimizer in the job file"));
    }
    progress_.Reset(time_.Now());
    absl::MutexLock lock(&mutex_);
    member_.Registered(reply, time_.Now());
    absl::StatusOr<WorkerMembership> life = AwaitLive();
    if (life.ok() && options_.on_live) options_.on_live();
    return life;
  }

  absl::StatusOr<ShardMap> GetShardMap() override {
    wire::GetShardMapReply reply;
    const absl::Status status = Call("get the shard map", &wire::Scheduler::Stub::GetShardMap,
                                     MakeMapRequest(life().job), &reply, options_.timeouts.startup);
    if (!status.ok()) return status;
    absl::MutexLock lock(&mutex_);
    member_.HasMap(Generation(reply.generation()));
    return FromWire(reply);
  }

  absl::StatusOr<Work> NextWork(RangeId range_done, double samples_per_second,
                                const std::vector<PartPosition>& reached) override {
    wire::NextTaskRequest request =
        MakeTaskRequest(life(), progress_.Take(time_.Now()), range_done, samples_per_second);
    AddPositions(reached, *request.mutable_reached());
    const absl::Time metered = AddEnergy(*request.mutable_progress());
    request.set_images_address(options_.images_address);
    if (options_.images_borrowed) {
      for (const uint32_t file : options_.images_borrowed()) request.add_images_borrowed(file);
    }
    wire::NextTaskReply reply;
    const absl::Status status = Call("ask for work", &wire::Scheduler::Stub::NextTask, request, &reply, silence_max_);
    if (!status.ok()) return status;
    ConfirmEnergy(metered);
    return FromWire(reply);
  }

  absl::StatusOr<std::vector<PartLease>> LeaseParts(const StreamFacts& stream, uint32_t wanted,
                                                    const std::vector<PartPosition>& reached) override {
    wire::LeasePartsReply reply;
    const absl::Status status = Call("lease parts of the stream", &wire::Scheduler::Stub::LeaseParts,
                                     MakePartsRequest(life(), stream, wanted, reached), &reply, silence_max_);
    if (!status.ok()) return status;
    return FromWire(reply);
  }

  absl::Status ReportEvaluation(const EvaluationResult& result) override {
    const wire::EvaluationReport report = ToWire(life(), result);
    wire::EvaluationReply reply;
    return Call("report an evaluation", &wire::Scheduler::Stub::ReportEvaluation, report, &reply, silence_max_);
  }

  void Leave(const std::string& reason, const RangePart& trained) override {
    wire::HeartbeatRequest request;
    {
      absl::MutexLock lock(&mutex_);
      if (!member_.beating()) return;
      member_.StopBeating();
      request = MakeGoodbye(member_.life(), progress_.Take(time_.Now()), reason, trained);
    }
    AddEnergy(*request.mutable_worker());
    wire::HeartbeatReply reply;
    // Whether it arrives or not: the worker goes, and silence says the same a little later.
    const auto context = rpc::ContextWithTimeout(options_.timeouts.server_dead());
    const grpc::Status status = stub()->Heartbeat(context.get(), request, &reply);
    if (!status.ok()) log::Warning("cannot tell the scheduler that this worker leaves: ", status.error_message());
    channel_.Drop();
  }

  absl::Status Pause(absl::Duration duration) override {
    stop_pausing_.Await(duration);
    absl::MutexLock lock(&mutex_);
    return InterruptStatus();
  }

  void Interrupt(const std::string& reason) override {
    absl::MutexLock lock(&mutex_);
    if (!interrupted_) interrupted_ = reason;
    stop_pausing_.Raise();
  }

  ProgressBoard& progress() override { return progress_; }

 private:
  using Stub = wire::Scheduler::Stub;

  std::unique_ptr<Stub> stub() const { return wire::Scheduler::NewStub(channel_.channel()); }
  WorkerMembership life() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return member_.life();
  }
  // Returns the time up to which the message has samples.
  absl::Time AddEnergy(wire::WorkerProgress& progress) const {
    if (options_.energy == nullptr) return absl::InfinitePast();
    const power::EnergyTotals totals = options_.energy->Take();
    SetEnergy(totals, time_.Now(), progress);
    return totals.until;
  }
  void ConfirmEnergy(absl::Time metered) const {
    if (options_.energy != nullptr) options_.energy->Confirm(metered);
  }
  bool LiveOrOver() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return member_.live() || member_.end() || interrupted_; }
  absl::Status InterruptStatus() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return interrupted_ ? absl::CancelledError(*interrupted_) : absl::OkStatus();
  }

  absl::Duration join_max() const { return std::max(options_.join_max, options_.timeouts.startup); }
  absl::StatusOr<WorkerMembership> AwaitLive() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    // absl::Mutex waits by the wall clock, which may be set forward meanwhile.
    const absl::Time end = time_.Now() + join_max();
    for (absl::Duration left = join_max(); left > absl::ZeroDuration(); left = end - time_.Now()) {
      if (mutex_.AwaitWithTimeout(absl::Condition(this, &GrpcSchedulerLink::LiveOrOver), left)) break;
    }
    if (interrupted_) return InterruptStatus();
    if (const auto& end = member_.end()) {
      return end->status.ok() ? absl::CancelledError("the job has ended: " + end->reason) : end->status;
    }
    if (member_.live()) return member_.life();
    return absl::DeadlineExceededError(
        absl::StrCat("registered as worker ", member_.life().worker.value(), ", but the scheduler at ",
                     options_.address, " did not make it a member within ", absl::FormatDuration(join_max()),
                     ": some server or worker of the job is missing"));
  }

  // Calls until there is an answer that is not worth another attempt, for at most `total`.
  template <typename Request, typename Reply>
  absl::Status Call(const char* what, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                    const Request& request, Reply* reply, absl::Duration total) {
    Backoff backoff(static_cast<uint64_t>(::getpid()));
    const absl::Time end = time_.Now() + total;
    SilenceNotice notice(absl::StrCat("the scheduler at ", options_.address), time_.Now(), total);
    while (true) {
      const absl::Duration attempt = std::min(end - time_.Now(), options_.timeouts.worker_dead());
      const auto context = rpc::ContextWithTimeout(attempt);
      const absl::Status status = rpc::FromGrpc((stub().get()->*method)(context.get(), request, reply));
      if (status.ok()) return status;
      const absl::Duration wait = backoff.Next();
      // Somebody else's scheduler stays that; later on, certificates may just be replaced.
      const bool stranger = rpc::IsMistrust(status) && life().worker == WorkerId();
      if (!rpc::IsRetryable(status) || stranger || time_.Now() + wait >= end) {
        return absl::Status(status.code(), absl::StrCat("could not ", what, " at the scheduler (", options_.address,
                                                        "): ", channel_.Why(status)));
      }
      channel_.Failed();
      notice.NoAnswer(time_.Now(), channel_.Why(status));
      const absl::Status pause = Pause(wait);
      if (!pause.ok()) return pause;
    }
  }

  // --- heartbeat thread ---

  void RunHeartbeats() ABSL_LOCKS_EXCLUDED(mutex_) {
    const ProcessTime process_time;
    ComputingWatch watch(time_, process_time);
    const absl::Duration period = options_.timeouts.heartbeat;
    // Workers that start together do not send together, and a late answer moves nobody's time to send: otherwise more
    // and more of them would send in one burst.
    absl::Time due = time_.Now() + period * (static_cast<double>(instance_ % kPhases) / kPhases);
    for (; !stop_.Await(due - time_.Now()); due = NextDue(due, period, time_.Now())) {
      wire::HeartbeatRequest request;
      {
        absl::MutexLock lock(&mutex_);
        if (!member_.beating()) continue;
        NoteComputing(watch);
        request = MakeHeartbeat(member_.life(), progress_.Take(time_.Now()));
      }
      const absl::Time metered = AddEnergy(*request.mutable_worker());
      wire::HeartbeatReply reply;
      const auto context = rpc::ContextWithTimeout(options_.timeouts.failover());
      const absl::Status status = rpc::FromGrpc(stub()->Heartbeat(context.get(), request, &reply));
      if (status.ok()) ConfirmEnergy(metered);
      Digest(Incarnation(request.incarnation()), status, reply);
      if (status.ok() && KnowsOlderThan(Generation(reply.generation()))) FetchMap(JobId(request.job()));
    }
  }

  void NoteComputing(ComputingWatch& watch) {
    const absl::Duration stall = options_.timeouts.stall;
    if (watch.window() < stall / kLooksPerStall || !watch.Computed()) return;
    progress_.Computes(time_.Now(), ComputingWatch::kPatience * stall);
  }

  bool KnowsOlderThan(Generation generation) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return member_.KnowsOlderThan(generation);
  }

  // One attempt; the next heartbeat makes another.
  void FetchMap(JobId job) ABSL_LOCKS_EXCLUDED(mutex_, on_end_mutex_) {
    wire::GetShardMapReply reply;
    const auto context = rpc::ContextWithTimeout(options_.timeouts.failover());
    if (const grpc::Status status = stub()->GetShardMap(context.get(), MakeMapRequest(job), &reply); !status.ok()) {
      return log::Warning("cannot get the new shard map from the scheduler: ", status.error_message());
    }
    {
      absl::MutexLock lock(&mutex_);
      member_.HasMap(Generation(reply.generation()));
    }
    absl::MutexLock lock(&on_end_mutex_);
    if (on_map_) on_map_(FromWire(reply));
  }

  void Digest(Incarnation incarnation, const absl::Status& status, const wire::HeartbeatReply& reply)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::StatusOr<wire::HeartbeatReply> answer = reply;
    if (!status.ok()) answer = status;
    MemberState::End end;
    {
      absl::MutexLock lock(&mutex_);
      if (rpc::IsRetryable(status) && member_.beating()) channel_.Failed();
      if (member_.Heard(incarnation, answer, time_.Now()) != MemberState::News::kEnd) return;
      end = *member_.end();
    }
    absl::MutexLock lock(&on_end_mutex_);
    if (on_end_) on_end_(end.status, end.reason);
  }

  const Options options_;
  const uint64_t instance_ = DrawInstance();
  const SteadyTime time_;
  const absl::Duration silence_max_;
  rpc::FollowedChannel channel_;
  ProgressBoard progress_;

  absl::Mutex on_end_mutex_;  // before mutex_
  OnEnd on_end_ ABSL_GUARDED_BY(on_end_mutex_);
  OnMap on_map_ ABSL_GUARDED_BY(on_end_mutex_);

  absl::Mutex mutex_;
  MemberState member_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::string> interrupted_ ABSL_GUARDED_BY(mutex_);
  SteadyFlag stop_;
  SteadyFlag stop_pausing_;
  std::thread heartbeats_;
};

}  // namespace

std::unique_ptr<SchedulerLink> SchedulerLink::Create(const Options& options) {
  return std::make_unique<GrpcSchedulerLink>(options);
}

}  // namespace slackline::worker
