// Runs a scheduler's controller through a history, for the fuzzers of its requests and of its saved state.
#pragma once

#include <google/protobuf/message.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/job/job_file.h"
#include "common/log/logging.h"
#include "histories.pb.h"
#include "scheduler/control/controller.h"

namespace slackline::fuzz {

// Returns the largest number in any uint64 of `message`, at any depth.
inline uint64_t LargestNumber(const google::protobuf::Message& message) {
  using Field = google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const Field*> fields;
  reflection.ListFields(message, &fields);
  uint64_t largest = 0;
  for (const Field* field : fields) {
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const bool repeated = field->is_repeated();
      if (field->cpp_type() == Field::CPPTYPE_MESSAGE) {
        largest = std::max(largest, LargestNumber(repeated ? reflection.GetRepeatedMessage(message, field, i)
                                                           : reflection.GetMessage(message, field)));
      } else if (field->cpp_type() == Field::CPPTYPE_UINT64) {
        largest = std::max(
            largest, repeated ? reflection.GetRepeatedUInt64(message, field, i) : reflection.GetUInt64(message, field));
      }
    }
  }
  return largest;
}

// Fake servers: they record what they are told, and the history and SchedulerUnderTest answer for them.
class SilentServers : public scheduler::ServerCalls {
 public:
  void Connect(scheduler::ServerRef server, const std::string&, const std::string&,
               scheduler::ServerObserver&) override {
    told_[server.server] = server;
  }
  void Disconnect(scheduler::ServerRef server) override { told_.erase(server.server); }
  void Install(scheduler::ServerRef server, const wire::InstallShardsRequest&) override {
    SLACKLINE_CHECK(told_.contains(server.server));
    installing_[server.server] = server;
  }
  void BeginCheckpoint(scheduler::ServerRef server, const wire::BeginCheckpointRequest&) override {
    SLACKLINE_CHECK(told_.contains(server.server));
  }
  void SetMembers(scheduler::ServerRef server, const wire::SetMembersRequest& request) override {
    SLACKLINE_CHECK(told_.contains(server.server));
    epochs_[server.server] = request.epoch();
  }
  void TakeShards(scheduler::ServerRef server, const wire::TakeShardsRequest&) override {
    SLACKLINE_CHECK(told_.contains(server.server));
  }
  void Stop(scheduler::ServerRef, const wire::StopRequest&) override {}

  std::map<ServerId, scheduler::ServerRef> told_, installing_;
  std::map<ServerId, uint64_t> epochs_;
};

// Thread-safety: none.
class SchedulerUnderTest {
 public:
  explicit SchedulerUnderTest(const SchedulerHistory& history) : config_(MakeConfig(history)) {
    Begin();
    // State that makes no sense is refused, and such a scheduler is not used.
    began_with_ = LargestNumber(history.saved());
    if (history.has_saved()) usable_ = controller_->Restore(MakeRight(history.saved()), Wall()).ok();
    if (!history.has_saved() && !history.bare()) Start();
  }

  void Play(const SchedulerEvent& event) {
    if (!usable_) return;
    const bool right = !event.as_it_is();
    Do(event, right);
    AnswerForServers();
    controller_->Tick();
  }

  // Calls everything that people and other programs may ask for.
  void Check() {
    if (!usable_) return;
    controller_->Tick();
    const wire::GetStatusReply status = controller_->GetStatus();
    SLACKLINE_CHECK(status.samples_done() <= status.samples_total() || status.samples_total() == 0);
    controller_->Summary();
    controller_->TakeReports();
    controller_->TakeEvents();
  }

 private:
  static constexpr uint64_t kJob = 77, kFingerprint = 5;
  // No history counts up to this number.
  static constexpr uint64_t kFarNumber = uint64_t{1} << 61;

  static scheduler::Controller::Config MakeConfig(const SchedulerHistory& history) {
    job::Job job;
    job.mutable_cluster()->set_servers(2);
    job.mutable_cluster()->set_workers(2);
    job.mutable_training()->set_epochs(2);
    job.mutable_training()->set_batch_size(10);
    job.mutable_guard()->set_loss_max(100);
    job.mutable_guard()->set_gradient_norm_max(1000);
    job.mutable_training()->set_batch(history.mode() % 2 == 0 ? job::Training::FIXED : job::Training::BALANCE);
    const int mode = 1 + static_cast<int>(history.mode() % job::Consistency::Mode_MAX);
    job.mutable_consistency()->set_mode(static_cast<job::Consistency::Mode>(mode));
    job.mutable_consistency()->set_staleness_auto(true);
    scheduler::Controller::Config config;
    config.job = Resolve(job);
    config.fingerprint = kFingerprint;
    config.id = JobId(kJob);
    config.run_folder = "/runs/one";
    config.snapshot_folder = "/runs/one/snapshots";
    config.timeouts.heartbeat = absl::Milliseconds(100);
    config.timeouts.startup = absl::Seconds(10);
    return config;
  }

  static state::Scheduler MakeRight(state::Scheduler saved) {
    if (saved.format() == 0) saved.set_format(1);
    if (saved.job() == 0) saved.set_job(kJob);
    if (saved.fingerprint() == 0) saved.set_fingerprint(kFingerprint);
    return saved;
  }

  absl::Time Wall() const { return absl::FromUnixSeconds(1'700'000'000) + (time_.Now() - absl::UnixEpoch()); }

  void Begin() { controller_ = std::make_unique<scheduler::Controller>(config_, time_, servers_); }

  void Start() {
    for (const char* name : {"ps-1", "ps-2"}) {
      wire::RegisterServerRequest request;
      request.set_name(name);
      request.set_address("127.0.0.1:1");
      request.set_job_fingerprint(kFingerprint);
      SLACKLINE_CHECK(controller_->RegisterServer(request).ok());
    }
    for (const char* name : {"w-1", "w-2"}) {
      wire::RegisterWorkerRequest request;
      request.set_name(name);
      request.set_job_fingerprint(kFingerprint);
      request.set_train_samples(100);
      request.set_test_samples(10);
      wire::TensorSpec& tensor = *request.add_tensors();
      tensor.set_name("weight");
      tensor.add_shape(10000);
      tensor.set_trained(true);
      SLACKLINE_CHECK(controller_->RegisterWorker(request).ok());
    }
    AnswerForServers();
    SLACKLINE_CHECK(controller_->state() == wire::JOB_TRAINING);
  }

  // Answers for the servers, which do as they are told; answers in the history come in addition.
  void AnswerForServers() {
    for (int round = 0; round < 8 && (!servers_.installing_.empty() || !servers_.epochs_.empty()); ++round) {
      for (const auto& [id, server] : std::exchange(servers_.installing_, {})) controller_->Installed(server, {});
      for (const auto& [id, epoch] : std::exchange(servers_.epochs_, {})) {
        wire::SetMembersReply reply;
        reply.set_epoch(epoch);
        if (const auto told = servers_.told_.find(id); told != servers_.told_.end()) {
          controller_->MembersInstalled(told->second, reply);
        }
      }
    }
  }

  // Returns the present incarnation of the member with this number; 0 if there is none.
  uint64_t IncarnationOf(wire::MemberRole role, uint32_t member) {
    const wire::GetStatusReply reply = controller_->GetStatus();
    for (const wire::MemberStatus& status : reply.members()) {
      if (status.role() == role && status.member() == member) return status.incarnation();
    }
    return 0;
  }

  void Do(const SchedulerEvent& event, bool right) {
    switch (event.event_case()) {
      case SchedulerEvent::kRegisterServer: {
        wire::RegisterServerRequest request = event.register_server();
        if (right) request.set_job_fingerprint(kFingerprint);
        return controller_->RegisterServer(request).status().IgnoreError();
      }
      case SchedulerEvent::kRegisterWorker: {
        wire::RegisterWorkerRequest request = event.register_worker();
        if (right) request.set_job_fingerprint(kFingerprint);
        if (right && request.worker() != 0) {
          request.set_incarnation(IncarnationOf(wire::MEMBER_ROLE_WORKER, request.worker()));
        }
        return controller_->RegisterWorker(request).status().IgnoreError();
      }
      case SchedulerEvent::kHeartbeat: {
        wire::HeartbeatRequest request = event.heartbeat();
        if (right) request.set_job(kJob);
        if (right) request.set_incarnation(IncarnationOf(request.role(), request.member()));
        return controller_->Heartbeat(request).status().IgnoreError();
      }
      case SchedulerEvent::kGetShardMap: {
        wire::GetShardMapRequest request = event.get_shard_map();
        if (right) request.set_job(kJob);
        return controller_->GetShardMap(request).status().IgnoreError();
      }
      case SchedulerEvent::kNextTask:
        return NextTask(event.next_task(), right);
      case SchedulerEvent::kReportEvaluation: {
        wire::EvaluationReport request = event.report_evaluation();
        if (right) request.set_job(kJob);
        if (right) request.set_incarnation(IncarnationOf(wire::MEMBER_ROLE_WORKER, request.worker()));
        return controller_->ReportEvaluation(request).IgnoreError();
      }
      case SchedulerEvent::kReportExit: {
        wire::ReportExitRequest request = event.report_exit();
        if (right) request.set_job(kJob);
        return controller_->ReportExit(request).IgnoreError();
      }
      case SchedulerEvent::kStopJob:
        return controller_->StopJob(event.stop_job().reason(), event.stop_job().failed());
      case SchedulerEvent::kPassMs:
        return time_.Advance(absl::Milliseconds(event.pass_ms()));
      case SchedulerEvent::kMembersInstalled:
        for (const auto& [id, server] : std::map(servers_.told_)) {
          controller_->MembersInstalled(server, event.members_installed());
        }
        return;
      case SchedulerEvent::kRestart: {
        const state::Scheduler saved = controller_->Save(Wall());
        Begin();
        // A controller must be able to read the state that it wrote, unless its numbers began near the largest possible
        // one and have gone beyond it.
        usable_ = controller_->Restore(saved, Wall()).ok();
        SLACKLINE_CHECK(usable_ || began_with_ > kFarNumber);
        return;
      }
      case SchedulerEvent::kChangeServers:
        return controller_->ChangeServers(event.change_servers()).status().IgnoreError();
      case SchedulerEvent::EVENT_NOT_SET:
        return;
    }
  }

  void NextTask(wire::NextTaskRequest request, bool right) {
    if (right) request.set_job(kJob);
    if (right) request.set_incarnation(IncarnationOf(wire::MEMBER_ROLE_WORKER, request.worker()));
    // A `range_done` of 1 stands for the range that the worker was given last.
    if (right && request.range_done() == 1) request.set_range_done(last_ranges_[request.worker()]);
    const auto reply = controller_->NextTask(request);
    if (!reply.ok() || !reply->has_range()) return;
    last_ranges_[request.worker()] = reply->range().range();
    // Workers rely on these properties of a range.
    const wire::RangeTask& range = reply->range();
    SLACKLINE_CHECK(range.begin() < range.end() && range.batch_size() > 0);
    SLACKLINE_CHECK(range.epoch() < config_.job.training().epochs());
  }

  const scheduler::Controller::Config config_;
  ManualTime time_;
  SilentServers servers_;
  std::unique_ptr<scheduler::Controller> controller_;
  std::map<uint32_t, uint64_t> last_ranges_;
  bool usable_ = true;
  uint64_t began_with_ = 0;
};

inline void Play(const SchedulerHistory& history) {
  static const bool quiet = (log::Initialise("fuzz", log::Least::kWarning), true);
  SLACKLINE_CHECK(quiet);
  SchedulerUnderTest scheduler(history);
  scheduler.Check();
  for (const SchedulerEvent& event : history.events()) scheduler.Play(event);
  scheduler.Check();
}

}  // namespace slackline::fuzz
