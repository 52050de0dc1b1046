// A controller with fake servers, which do as they are told, in time that only the test moves; for tests of the
// controller.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include "common/base/protocol_version.h"
#include "common/job/job_file.h"
#include "common/metrics/measured.h"
#include "common/time/clock.h"
#include "scheduler/control/controller.h"

namespace slackline::scheduler {

// Records what each server was told. A test lets the servers answer with FakeCluster::Answer().
class FakeServers : public ServerCalls {
 public:
  struct Told {
    ServerRef server;
    std::string name;
    bool connected = false;
    std::optional<wire::InstallShardsRequest> install;
    std::optional<wire::SetMembersRequest> members;
    std::optional<wire::BeginCheckpointRequest> checkpoint;
    std::optional<wire::StopRequest> stop;
    std::optional<wire::TakeShardsRequest> take = {};
  };

  void Connect(ServerRef server, const std::string& name, const std::string&, ServerObserver&) override {
    const auto known = told_.find(server.server);
    const bool second = known != told_.end() && known->second.connected && known->second.name != name;
    (second ? backups_ : told_)[server.server] = {server, name, true, {}, {}, {}, {}};
  }
  void Disconnect(ServerRef server) override {
    if (const auto told = told_.find(server.server); told != told_.end() && told->second.server == server) {
      told->second = {server, told->second.name, false, {}, {}, {}, {}};
      // A backup that takes over has a link already.
      if (auto backup = backups_.extract(server.server)) told->second = backup.mapped();
    } else if (const auto backup = backups_.find(server.server);
               backup != backups_.end() && backup->second.server == server) {
      backups_.erase(backup);
    }
  }
  void Install(ServerRef server, const wire::InstallShardsRequest& request) override { Find(server).install = request; }
  void SetMembers(ServerRef server, const wire::SetMembersRequest& request) override { Find(server).members = request; }
  void BeginCheckpoint(ServerRef server, const wire::BeginCheckpointRequest& request) override {
    Find(server).checkpoint = request;
  }
  void TakeShards(ServerRef server, const wire::TakeShardsRequest& request) override { Find(server).take = request; }
  void Stop(ServerRef server, const wire::StopRequest& request) override { Find(server).stop = request; }

  std::map<ServerId, Told>& told() { return told_; }
  // Returns what each server's backup was told.
  std::map<ServerId, Told>& backups() { return backups_; }

 private:
  Told& Find(ServerRef server) {
    const auto backup = backups_.find(server.server);
    return backup != backups_.end() && backup->second.server == server ? backup->second : told_.at(server.server);
  }

  std::map<ServerId, Told> told_, backups_;
};

class FakeCluster {
 public:
  static constexpr uint64_t kJob = 77;
  static constexpr uint64_t kFingerprint = 5;

  struct Member {
    wire::MemberRole role;
    std::string name;
    uint32_t id = 0;
    uint64_t incarnation = 0;
    bool beats = true;
    bool installed = false;  // servers only
  };

  // Returns a small job: T (the heartbeat interval) is 100 ms, startup 10 s, stall 60 s; an epoch is one range of 100
  // samples.
  static job::Job SmallJob() {
    job::Job job;
    job.mutable_cluster()->set_servers(2);
    job.mutable_cluster()->set_workers(2);
    job.mutable_training()->set_epochs(2);
    job.mutable_training()->set_batch_size(100);
    return Resolve(job);
  }

  explicit FakeCluster(const job::Job& job = SmallJob(), bool keeps_state = false, bool unwatched = false)
      : job_(job), controller_(ConfigFor(job, keeps_state, unwatched), time_, servers_) {}

  Controller& controller() { return controller_; }
  const job::Job& job() const { return job_; }
  // Restores the scheduler from what the other cluster's scheduler has saved, `away` after it was saved, and takes over
  // the members.
  absl::Status TakeOver(const FakeCluster& other, const state::Scheduler& saved,
                        absl::Duration away = absl::ZeroDuration()) {
    members_ = other.members_;
    progress_ = other.progress_;
    seeded_ = other.seeded_;
    durable_ = other.durable_;
    return controller_.Restore(saved, absl::FromUnixMicros(saved.saved_unix_us()) + away);
  }
  state::Scheduler Save() const { return controller_.Save(absl::FromUnixSeconds(1'700'000'000)); }
  FakeServers& servers() { return servers_; }
  // Makes Pass() put the scheduler's state on a disk in every T from now on.
  void KeepState() { keeps_ = true; }

  // AddServer() and AddWorker() abort the test if the registration fails.
  Member AddServer(const std::string& name, uint32_t link_mbit = 0, uint32_t minor = OwnProtocol().minor) {
    wire::RegisterServerRequest request;
    request.set_name(name);
    SetProtocol(request);
    request.mutable_version()->set_minor(minor);
    request.set_address(name + ":1");
    request.set_metrics_address(name + ":9");
    request.set_job_fingerprint(kFingerprint);
    if (link_mbit > 0) {
      request.mutable_local()->set_machine(absl::StrCat("machine of ", name));
      request.mutable_local()->set_link_mbit(link_mbit);
    }
    const auto reply = controller_.RegisterServer(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return members_[name] = {wire::MEMBER_ROLE_SERVER, name, reply->server(), reply->incarnation()};
  }
  Member AddWorker(const std::string& name, uint32_t group = 0) {
    wire::RegisterWorkerRequest request = WorkerRequest(name);
    request.set_group(group);
    const auto reply = controller_.RegisterWorker(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return members_[name] = {wire::MEMBER_ROLE_WORKER, name, reply->worker(), reply->incarnation()};
  }
  // Makes a member that has registered by other means beat and ask by its name from now on.
  void Adopt(const Member& member) { members_[member.name] = member; }
  // Lets a worker on standby join again.
  void Rejoin(const std::string& name) {
    wire::RegisterWorkerRequest request = WorkerRequest(name);
    request.set_worker(members_[name].id);
    request.set_incarnation(members_[name].incarnation);
    const auto reply = controller_.RegisterWorker(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
    members_[name].id = reply->worker();
    members_[name].incarnation = reply->incarnation();
  }
  static wire::RegisterWorkerRequest WorkerRequest(const std::string& name) {
    wire::RegisterWorkerRequest request;
    request.set_name(name);
    request.set_job_fingerprint(kFingerprint);
    request.set_metrics_address(name + ":9");
    request.set_train_samples(100);
    request.set_test_samples(10);
    wire::TensorSpec& tensor = *request.add_tensors();
    tensor.set_name("weight");
    tensor.add_shape(10000);
    tensor.set_trained(true);
    return request;
  }

  // Adds two servers and two workers, and begins training.
  void Start() {
    for (const char* name : {"ps-1", "ps-2"}) AddServer(name);
    for (const char* name : {"w-1", "w-2"}) AddWorker(name);
    Answer();
    ASSERT_EQ(controller_.state(), wire::JOB_TRAINING) << controller_.GetStatus().reason();
  }

  // Lets the servers that are still beating do what they were told, and what they are told thereupon.
  void Answer() {
    while (AnswerOnce()) {
    }
  }

  // Returns whether there was anything to do.
  bool AnswerOnce() {
    const bool servers = AnswerOnce(servers_.told());
    return AnswerOnce(servers_.backups()) || servers;
  }
  bool AnswerOnce(std::map<ServerId, FakeServers::Told>& all) {
    bool busy = false;
    for (auto& [id, told] : all) {
      Member& server = members_[told.name];
      if (!server.beats) continue;
      if (told.install) {
        busy = true;
        told.install.reset();
        server.installed = true;
        controller_.Installed(told.server, restored_[told.name]);
      }
      if (told.members && server.installed) {
        busy = true;
        wire::SetMembersReply reply;
        reply.set_epoch(told.members->epoch());
        reply.set_clock_min_largest(clock_min_largest_);
        for (const wire::FencedWorker& worker : fenced_[told.name]) *reply.add_fenced() = worker;
        told.members.reset();
        controller_.MembersInstalled(told.server, reply);
      }
      if (told.stop) {
        busy = true;
        told.stop.reset();
        server.beats = false;
        controller_.Stopped(told.server);
      }
    }
    return busy;
  }

  absl::StatusOr<wire::HeartbeatReply> Beat(const std::string& name) {
    const Member& member = members_.at(name);
    wire::HeartbeatRequest request;
    request.set_job(kJob);
    request.set_role(member.role);
    request.set_member(member.id);
    request.set_incarnation(member.incarnation);
    *request.mutable_worker() = progress_[name];
    request.mutable_server()->set_seeded(seeded_.contains(name));
    request.mutable_server()->set_durable(durable_.contains(name));
    if (const auto found = checkpoints_.find(name); found != checkpoints_.end()) {
      *request.mutable_server()->mutable_checkpoint() = found->second;
    }
    if (const auto found = pairings_.find(name); found != pairings_.end()) {
      *request.mutable_server()->mutable_backup() = found->second;
    }
    return controller_.Heartbeat(request);
  }

  // Lets a worker leave in good order.
  absl::Status Leave(const std::string& name) {
    wire::HeartbeatRequest request;
    request.set_job(kJob);
    request.set_role(wire::MEMBER_ROLE_WORKER);
    request.set_member(members_.at(name).id);
    request.set_incarnation(members_.at(name).incarnation);
    request.set_leaving(true);
    members_.at(name).beats = false;
    return controller_.Heartbeat(request).status();
  }

  // Lets time pass in steps of T, with heartbeats of all members that still send any.
  void Pass(absl::Duration duration) {
    for (absl::Duration step; step < duration; step += absl::Milliseconds(100)) {
      time_.Advance(absl::Milliseconds(100));
      for (auto& [name, member] : members_) {
        if (member.beats) Beat(name).IgnoreError();
      }
      controller_.Tick();
      if (keeps_) controller_.StateKept(Save());
      Answer();
    }
  }

  // Lets time pass while no member does anything.
  void Advance(absl::Duration duration) { time_.Advance(duration); }

  absl::StatusOr<wire::NextTaskReply> Next(const std::string& name, uint64_t range_done = 0) {
    wire::NextTaskRequest request;
    request.set_job(kJob);
    request.set_worker(members_.at(name).id);
    request.set_incarnation(members_.at(name).incarnation);
    request.set_range_done(range_done);
    *request.mutable_progress() = progress_[name];
    return controller_.NextTask(request);
  }
  // Returns the range that the worker gets; fails the test if it gets none.
  uint64_t Range(const std::string& name, uint64_t range_done = 0) {
    const auto reply = Next(name, range_done);
    EXPECT_TRUE(reply.ok() && reply->has_range()) << reply.status() << (reply.ok() ? reply->DebugString() : "");
    return reply.ok() ? reply->range().range() : 0;
  }
  absl::Status Evaluated(const std::string& name, uint32_t epoch, bool final, std::optional<double> accuracy = 0.9,
                         std::optional<double> map_50 = std::nullopt, uint64_t at_samples = 0,
                         const NamedValues& values = {}) {
    wire::EvaluationReport report;
    report.set_job(kJob);
    report.set_worker(members_.at(name).id);
    report.set_incarnation(members_.at(name).incarnation);
    report.set_epoch(epoch);
    report.set_final(final);
    report.set_at_samples(at_samples);
    report.set_samples(10);
    SetTestAccuracy(accuracy, report);
    if (map_50) report.set_map_50(*map_50);
    AddNamedValues(values, report.mutable_values());
    for (const uint64_t count : {5, 0, 1, 4}) report.add_confusion(count);
    return controller_.ReportEvaluation(report);
  }

  // Leases a part of a stream of three parts.
  absl::StatusOr<wire::LeasePartsReply> LeasePart(const std::string& name) {
    wire::LeasePartsRequest request;
    request.set_job(kJob);
    request.set_worker(members_.at(name).id);
    request.set_incarnation(members_.at(name).incarnation);
    request.mutable_stream()->set_parts(3);
    request.set_wanted(1);
    return controller_.LeaseParts(request);
  }
  // Makes the server say, once it has fenced the worker, that its shards have trained so many records of its part.
  void Reach(const std::string& server, const std::string& name, uint64_t lease, uint64_t records, uint32_t shards) {
    wire::FencedWorker& worker = fenced_[server].emplace_back();
    worker.set_worker(members_.at(name).id);
    worker.set_incarnation(members_.at(name).incarnation);
    worker.set_shards(shards);
    wire::PartPosition& part = *worker.add_parts();
    part.set_lease(lease);
    part.set_records(records);
  }

  // Stops the heartbeats of this member.
  void Silence(const std::string& name) { members_.at(name).beats = false; }
  Member& member(const std::string& name) { return members_.at(name); }
  wire::WorkerProgress& progress(const std::string& name) { return progress_[name]; }
  // Returns the checkpoint's progress, which the server reports with its heartbeats.
  wire::CheckpointProgress& checkpoint(const std::string& server) { return checkpoints_[server]; }
  wire::BackupProgress& pairing(const std::string& server) { return pairings_[server]; }
  void Seed(const std::string& server) { seeded_.insert(server); }
  // Returns the server's answer to the next time that shards are installed there.
  wire::InstallShardsReply& restored(const std::string& server) { return restored_[server]; }
  // Makes the server report that its shards have snapshots.
  void MakeDurable(const std::string& server) { durable_.insert(server); }

  std::string StateOf(const std::string& name) {
    const wire::GetStatusReply status = controller_.GetStatus();
    for (const wire::MemberStatus& member : status.members()) {
      if (member.name() == name) return member.state();
    }
    return "unknown";
  }
  bool HasEvent(const std::string& part) {
    const wire::GetStatusReply status = controller_.GetStatus();
    for (const std::string& event : status.events()) {
      if (event.find(part) != std::string::npos) return true;
    }
    return false;
  }

 private:
  static Controller::Config ConfigFor(const job::Job& job, bool keeps_state, bool unwatched) {
    Controller::Config config;
    config.job = job;
    config.fingerprint = kFingerprint;
    config.id = JobId(kJob);
    config.run_folder = "/runs/one";
    if (job.durability().mode() == job::Durability::SNAPSHOT) config.snapshot_folder = "/runs/one/snapshots";
    config.checkpoint_folder = job.checkpoint().folder();  // empty: no checkpoints are made
    config.keeps_state = keeps_state;
    config.unwatched = unwatched;
    config.timeouts.heartbeat = absl::Milliseconds(100);
    config.timeouts.startup = absl::Seconds(10);
    config.timeouts.task_lease = absl::Seconds(job.local().lease_s());
    return config;
  }

  const job::Job job_;
  ManualTime time_;
  FakeServers servers_;
  Controller controller_;
  std::map<std::string, Member> members_;
  std::map<std::string, wire::WorkerProgress> progress_;
  std::map<std::string, wire::CheckpointProgress> checkpoints_;
  std::map<std::string, wire::InstallShardsReply> restored_;
  std::map<std::string, wire::BackupProgress> pairings_;
  std::set<std::string> seeded_, durable_;
  std::map<std::string, std::vector<wire::FencedWorker>> fenced_;
  uint64_t clock_min_largest_ = 0;
  bool keeps_ = false;
};

}  // namespace slackline::scheduler
