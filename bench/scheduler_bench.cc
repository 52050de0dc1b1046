// What a job of a whole machine costs the scheduler: one controller, and workers that register, beat and ask for work
// as real ones do, as messages that are parsed and written, but without gRPC's own work. The members' sets go to
// servers that answer at once.
#include <malloc.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/support/command_line.h"
#include "bench/support/report.h"
#include "common/base/check.h"
#include "common/base/protocol_version.h"
#include "common/job/job_file.h"
#include "common/log/logging.h"
#include "common/time/timeouts.h"
#include "scheduler/control/controller.h"

namespace slackline::scheduler {
namespace {

constexpr JobId kJob(77);
constexpr uint64_t kSamplesPerBatch = 32;

// As many epochs' images as all workers train in a round of tasks.
job::Job MakeJob(uint32_t workers, uint32_t servers) {
  job::Job job;
  job.mutable_cluster()->set_workers(workers);
  job.mutable_cluster()->set_servers(servers);
  job.mutable_training()->set_epochs(1000);
  job.mutable_training()->set_batch_size(kSamplesPerBatch);
  job.mutable_consistency()->set_mode(job::Consistency::ASYNC);
  return Resolve(job);
}

class InstantServers : public ServerCalls {
 public:
  void Connect(ServerRef server, const std::string&, const std::string&, ServerObserver& observer) override {
    observer_ = &observer;
    known_.push_back({server, false, std::nullopt});
  }
  void Disconnect(ServerRef /*server*/) override {}
  void Install(ServerRef server, const wire::InstallShardsRequest&) override { Find(server).install = true; }
  void SetMembers(ServerRef server, const wire::SetMembersRequest& request) override {
    bytes_ += request.ByteSizeLong();
    Find(server).epoch = request.epoch();
  }
  void TakeShards(ServerRef, const wire::TakeShardsRequest&) override {}
  void BeginCheckpoint(ServerRef, const wire::BeginCheckpointRequest&) override {}
  void Stop(ServerRef, const wire::StopRequest&) override {}

  void Answer() {
    for (Known& one : known_) {
      if (std::exchange(one.install, false)) observer_->Installed(one.server, {});
      if (const auto epoch = std::exchange(one.epoch, std::nullopt)) {
        wire::SetMembersReply reply;
        reply.set_epoch(*epoch);
        observer_->MembersInstalled(one.server, reply);
      }
    }
  }
  uint64_t bytes() const { return bytes_; }

 private:
  struct Known {
    ServerRef server;
    bool install = false;
    std::optional<uint64_t> epoch;
  };
  Known& Find(ServerRef server) {
    for (Known& one : known_) {
      if (one.server == server) return one;
    }
    SLACKLINE_CHECK(false);
  }

  ServerObserver* observer_ = nullptr;
  std::vector<Known> known_;
  uint64_t bytes_ = 0;
};

// As it comes from the wire and goes back to it.
template <typename Request, typename Reply>
Reply Call(Controller& controller, absl::StatusOr<Reply> (Controller::*method)(const Request&),
           const Request& request) {
  Request parsed;
  SLACKLINE_CHECK(parsed.ParseFromString(request.SerializeAsString()));
  absl::StatusOr<Reply> reply = (controller.*method)(parsed);
  if (!reply.ok()) {
    std::fprintf(stderr, "scheduler_bench: %s\n", reply.status().ToString().c_str());
    std::exit(1);
  }
  Reply sent;
  SLACKLINE_CHECK(sent.ParseFromString(reply->SerializeAsString()));
  return sent;
}

struct Member {
  wire::HeartbeatRequest beat;
  uint64_t range = 0;
};

class Machine {
 public:
  Machine(uint32_t workers, uint32_t servers)
      : workers_(workers),
        controller_(
            {.job = MakeJob(workers, servers), .fingerprint = 5, .id = kJob, .run_folder = "/none", .timeouts = {}},
            time_, servers_) {
    for (uint32_t i = 1; i <= servers; ++i) {
      wire::RegisterServerRequest request;
      request.set_name(absl::StrCat("ps-", i));
      request.set_address(absl::StrCat("node", i, ":1"));
      request.set_job_fingerprint(5);
      SetProtocol(request);
      const auto reply = Call(controller_, &Controller::RegisterServer, request);
      wire::HeartbeatRequest beat;
      beat.set_job(kJob.value());
      beat.set_role(wire::MEMBER_ROLE_SERVER);
      beat.set_member(reply.server());
      beat.set_incarnation(reply.incarnation());
      beat.mutable_server()->set_seeded(true);
      servers_beat_.push_back(beat);
    }
  }

  void Register() {
    for (uint32_t i = 1; i <= workers_; ++i) {
      wire::RegisterWorkerRequest request;
      request.set_name(absl::StrCat("worker-", i));
      request.set_job_fingerprint(5);
      request.set_train_samples(uint64_t{workers_} * 100 * kSamplesPerBatch);
      request.set_test_samples(1000);
      wire::TensorSpec& tensor = *request.add_tensors();
      tensor.set_name("weight");
      tensor.add_shape(1'000'000);
      tensor.set_trained(true);
      const auto reply = Call(controller_, &Controller::RegisterWorker, request);
      Member& member = members_.emplace_back();
      member.beat.set_job(kJob.value());
      member.beat.set_role(wire::MEMBER_ROLE_WORKER);
      member.beat.set_member(reply.worker());
      member.beat.set_incarnation(reply.incarnation());
      // Real servers answer after a round trip, in which further workers come.
      if (i % 64 == 0) servers_.Answer();
    }
    servers_.Answer();
    servers_.Answer();
    SLACKLINE_CHECK(controller_.state() == wire::JOB_TRAINING);
  }
  void Beat() {
    time_.Advance(absl::Milliseconds(300));
    for (Member& member : members_) {
      wire::WorkerProgress& progress = *member.beat.mutable_worker();
      progress.set_clock(progress.clock() + 2);
      progress.set_steps(progress.steps() + 2);
      progress.set_samples(progress.samples() + 2 * kSamplesPerBatch);
      progress.set_loss_sum(progress.loss_sum() + 1);
      progress.set_step_ms_median(150);
      progress.set_slack_max(3);
      progress.set_pushes_applied(progress.pushes_applied() + 16);
      progress.set_staleness_sum(progress.staleness_sum() + 160);
      progress.set_staleness_answers(progress.staleness_answers() + 16);
      for (int i = progress.staleness_counts_size(); i < 20; ++i) progress.add_staleness_counts(0);
      progress.set_staleness_counts(10, progress.staleness_counts(10) + 16);
      Call(controller_, &Controller::Heartbeat, member.beat);
    }
    for (const wire::HeartbeatRequest& beat : servers_beat_) Call(controller_, &Controller::Heartbeat, beat);
  }
  void Ask() {
    for (Member& member : members_) {
      wire::NextTaskRequest request;
      request.set_job(kJob.value());
      request.set_worker(member.beat.member());
      request.set_incarnation(member.beat.incarnation());
      request.set_range_done(member.range);
      request.set_samples_per_second(200);
      *request.mutable_progress() = member.beat.worker();
      member.range = Call(controller_, &Controller::NextTask, request).range().range();
    }
  }
  void Tick() {
    controller_.Tick();
    controller_.TakeReports();
    controller_.TakeEvents();
  }
  void Status() { (void)controller_.GetStatus().SerializeAsString(); }
  uint64_t member_bytes() const { return servers_.bytes(); }

 private:
  const uint32_t workers_;
  ManualTime time_;
  InstantServers servers_;
  Controller controller_;
  std::vector<Member> members_;
  std::vector<wire::HeartbeatRequest> servers_beat_;
};

size_t HeapBytes() { return ::mallinfo2().uordblks + ::mallinfo2().hblkhd; }

template <typename Action>
double SecondsOf(Action action) {
  const absl::Time begin = absl::Now();
  action();
  return absl::ToDoubleSeconds(absl::Now() - begin);
}

bench::Row Measure(uint32_t workers, uint32_t servers, double seconds) {
  const size_t before = HeapBytes();
  const auto machine = std::make_unique<Machine>(workers, servers);
  const double registered = SecondsOf([&] { machine->Register(); });
  machine->Ask();
  const double bytes = static_cast<double>(HeapBytes() - before);
  double beats = 0, asks = 0, ticks = 0, statuses = 0, spent = 0;
  int rounds = 0;
  for (; rounds == 0 || spent < seconds; ++rounds) {
    beats += SecondsOf([&] { machine->Beat(); });
    ticks += SecondsOf([&] { machine->Tick(); });
    asks += SecondsOf([&] { machine->Ask(); });
    statuses += SecondsOf([&] { machine->Status(); });
    spent = beats + ticks + asks + statuses;
  }
  const double calls = static_cast<double>(workers) * rounds;
  const double beat_us = 1e6 * beats / calls;
  return bench::Row(absl::StrCat(workers, " workers"))
      .Add("register_us", 1e6 * registered / workers)
      .Add("heartbeat_us", beat_us)
      .Add("task_us", 1e6 * asks / calls)
      .Add("tick_ms", 1e3 * ticks / rounds)
      .Add("status_ms", 1e3 * statuses / rounds)
      // Those of the bench's own messages included.
      .Add("bytes_per_worker", bytes / workers)
      .Add("member_sets_mb", 1e-6 * static_cast<double>(machine->member_bytes()))
      // With T = 300 ms and two ticks in it.
      .Add("cores_for_heartbeats", (workers * beat_us * 1e-6 + 2 * ticks / rounds) / 0.3);
}

int Main(int argc, char** argv) {
  uint32_t workers = 13'900, servers = 16;
  bench::Effort effort{.seconds = 3};
  CLI::App app("What many workers cost the scheduler.", "scheduler_bench");
  app.add_option("--workers", workers, "Workers of the job")->capture_default_str()->check(CLI::Range(1, 65536));
  app.add_option("--servers", servers, "Server processes of the job")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  bench::AddEffort(app, effort);
  if (const auto exit_code = bench::Parse(app, argc, argv)) return *exit_code;
  log::Initialise("scheduler_bench", log::Least::kWarning);
  bench::Report report(effort.json);
  for (int repeat = 0; repeat < effort.repeats; ++repeat) report.Add(Measure(workers, servers, effort.seconds));
  report.Finish();
  return 0;
}

}  // namespace
}  // namespace slackline::scheduler

int main(int argc, char** argv) { return slackline::scheduler::Main(argc, argv); }
