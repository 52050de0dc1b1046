// Training and its disturbances: joins, standby, crashes, stalls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "tests/scheduler/fake_cluster.h"

namespace slackline::scheduler::controller_run_test {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;

// Two epochs of one range each.
TEST(ControllerRun, TrainsEvaluatesAndEnds) {
  FakeCluster cluster;
  cluster.Start();
  const uint64_t first = cluster.Range("w-1");
  const uint64_t second = cluster.Range("w-2");
  // Epoch 1 is complete: its evaluation comes before standing by.
  auto task = cluster.Next("w-1", first);
  ASSERT_TRUE(task->has_evaluate()) << task->DebugString();
  EXPECT_EQ(task->evaluate().epoch(), 1u);
  EXPECT_FALSE(task->evaluate().final());
  ASSERT_TRUE(cluster.Evaluated("w-1", 1, false).ok());
  EXPECT_TRUE(cluster.Next("w-1")->has_standby());
  EXPECT_EQ(cluster.StateOf("w-1"), "standby");
  EXPECT_EQ(cluster.Beat("w-1")->state(), wire::WORKER_STANDBY);

  task = cluster.Next("w-2", second);
  ASSERT_TRUE(task->has_evaluate()) << task->DebugString();
  EXPECT_TRUE(task->evaluate().final());
  EXPECT_EQ(task->evaluate().run_folder(), "/runs/one");
  EXPECT_TRUE(cluster.Next("w-1")->has_standby());
  ASSERT_TRUE(cluster.Evaluated("w-2", 2, true).ok());
  EXPECT_EQ(cluster.controller().state(), wire::JOB_DONE);
  EXPECT_TRUE(cluster.Next("w-1")->has_leave());
  EXPECT_TRUE(cluster.Beat("w-2")->leave());
  const wire::GetStatusReply status = cluster.controller().GetStatus();
  EXPECT_EQ(status.samples_done(), 200u);
  EXPECT_EQ(status.samples_total(), 200u);
  EXPECT_TRUE(status.has_test_accuracy());
  EXPECT_DOUBLE_EQ(status.test_accuracy(), 0.9);
  EXPECT_EQ(status.evaluation().confusion_size(), 0);
  size_t with_confusion = 0;
  for (const Report& report : cluster.controller().TakeReports()) {
    if (report.confusion.empty()) continue;
    ++with_confusion;
    EXPECT_EQ(report.confusion, (std::vector<uint64_t>{5, 0, 1, 4}));
  }
  EXPECT_EQ(with_confusion, 2u) << "one an evaluation";
}

TEST(ControllerRun, WhatFindsObjectsHasNoAccuracy) {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_data()->set_format(job::Data::COCO);
  job.mutable_model()->set_kind(job::Model::TORCHSCRIPT);
  job.mutable_training()->set_epochs(2);
  FakeCluster cluster(job);
  cluster.Start();
  const auto check = [&](const std::string& when) {
    cluster.Pass(absl::Seconds(2));
    EXPECT_EQ(cluster.controller().GetStatus().test_metric(), "map") << when;
    EXPECT_FALSE(cluster.controller().GetStatus().has_train_accuracy()) << when;
    EXPECT_EQ(cluster.controller().View().progress().test_metric(), "map") << when;
    EXPECT_FALSE(cluster.controller().View().progress().has_train_accuracy()) << when;
  };
  check("before the first evaluation");
  auto task = cluster.Next("w-1");
  ASSERT_TRUE(task->has_range());
  cluster.progress("w-1").set_samples(task->range().end() - task->range().begin());
  cluster.progress("w-1").set_samples_unjudged(cluster.progress("w-1").samples());
  ASSERT_TRUE(cluster.Beat("w-1").ok());
  check("when something was trained");
  EXPECT_TRUE(cluster.controller().GetStatus().has_loss());
  const std::vector<Report> reports = cluster.controller().TakeReports();
  ASSERT_FALSE(reports.empty());
  for (const Report& report : reports) EXPECT_FALSE(report.accuracy.has_value());
}

TEST(ControllerRun, RangesAreWholePushes) {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_training()->set_batch_size(10);
  job.mutable_training()->set_accumulate(3);
  FakeCluster cluster(job);
  cluster.Start();
  const auto task = cluster.Next("w-1");
  ASSERT_TRUE(task.ok() && task->has_range());
  EXPECT_EQ((task->range().end() - task->range().begin()) % 30, 0u) << task->DebugString();
  EXPECT_LT(task->range().end(), 100u);
}

TEST(ControllerRun, RangesAreWholeRoundsOfLocalSteps) {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_training()->set_batch_size(10);
  job.mutable_local()->set_steps(4);
  FakeCluster cluster(job);
  cluster.Start();
  const auto task = cluster.Next("w-1");
  ASSERT_TRUE(task.ok() && task->has_range());
  EXPECT_EQ(task->range().end() - task->range().begin(), 40u) << "a quarter of 100 images is no whole round";
}

TEST(ControllerRun, RangeOfLocalEpochsIsOneTask) {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_local()->set_epochs(3);
  {
    FakeCluster cluster(job);
    cluster.Start();
    const auto task = cluster.Next("w-1");
    ASSERT_TRUE(task.ok() && task->has_range());
    EXPECT_EQ(task->range().end() - task->range().begin(), 50u) << "100 images, two workers";
  }
  job.mutable_local()->set_subset_samples(30);
  FakeCluster cluster(job);
  cluster.Start();
  const auto task = cluster.Next("w-1");
  ASSERT_TRUE(task.ok() && task->has_range());
  EXPECT_EQ(task->range().end() - task->range().begin(), 30u);
}

// Two epochs of 100 images in ranges of 10.
job::Job ManyRanges() {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_training()->set_batch_size(10);
  return job;
}

TEST(ControllerRun, EpochEndsWhenItsSamplesAreTrainedWhoeverHoldsItsLastRange) {
  FakeCluster cluster(ManyRanges());
  cluster.Start();
  cluster.Range("w-1");  // it takes long
  uint64_t range = cluster.Range("w-2");
  for (uint64_t samples = 0; samples < 100; range = cluster.Range("w-2", range)) {
    EXPECT_FALSE(cluster.HasEvent("epoch 1 of 2 is complete")) << samples;
    const auto held = cluster.Next("w-2")->range();
    samples += held.end() - held.begin();
    cluster.progress("w-2").set_samples(samples);
    cluster.progress("w-2").set_samples_applied(samples / 2);
    if (samples >= 100) break;
  }
  cluster.Advance(absl::Seconds(3));
  ASSERT_TRUE(cluster.Beat("w-2").ok());
  EXPECT_TRUE(cluster.HasEvent("epoch 1 of 2 is complete"));
  EXPECT_EQ(cluster.controller().GetStatus().epoch(), 2u);
  const auto rows = cluster.controller().TakeEpochs();
  ASSERT_TRUE(rows && rows->size() == 1);
  EXPECT_EQ(rows->front().end_s, 3);
  EXPECT_EQ(rows->front().samples, 100u);
  EXPECT_EQ(rows->front().samples_applied, 50u);
  EXPECT_TRUE(cluster.Next("w-2", range)->has_evaluate());
  EXPECT_EQ(cluster.controller().Summary().epochs_done, 0u) << "w-1 has a range of it";
}

TEST(ControllerRun, EvaluatesOnAGridOfSamplesThatAreApplied) {
  job::Job job = ManyRanges();
  job.mutable_training()->set_evaluate_every_samples(20);
  FakeCluster cluster(job);
  cluster.Start();
  const uint64_t range = cluster.Range("w-1");
  cluster.progress("w-1").set_samples(30);
  cluster.progress("w-1").set_samples_applied(19);
  EXPECT_TRUE(cluster.Next("w-2")->has_range());
  cluster.progress("w-1").set_samples_applied(21);
  cluster.Advance(absl::Seconds(3));
  const auto task = cluster.Next("w-1", range);
  ASSERT_TRUE(task.ok() && task->has_evaluate()) << task->DebugString();
  EXPECT_EQ(task->evaluate().at_samples(), 20u);
  cluster.Advance(absl::Seconds(3));
  EXPECT_EQ(cluster.Evaluated("w-1", 0, false).code(), StatusCode::kFailedPrecondition) << "another evaluation";
  ASSERT_TRUE(cluster.Evaluated("w-1", 0, false, 0.5, std::nullopt, 20).ok());
  EXPECT_TRUE(cluster.HasEvent("after 21 samples: test accuracy 50.00 %"));
  const RunSummary summary = cluster.controller().Summary();
  ASSERT_EQ(summary.evaluations.size(), 1u);
  EXPECT_EQ(summary.evaluations[0].time_s, 3) << "when the weights were those";
  EXPECT_EQ(summary.evaluations[0].samples, 30u);
  EXPECT_EQ(summary.evaluations[0].samples_applied, 21u);
  EXPECT_EQ(summary.epoch_samples, 100u);
}

TEST(ControllerRun, ObservationIsAnEvaluationThatNobodyWasAskedFor) {
  FakeCluster cluster(ManyRanges());
  wire::EvaluationReport report;
  report.set_samples(10);
  report.set_accuracy(0.5);
  cluster.controller().NoteObserved(report, 0);
  EXPECT_TRUE(cluster.controller().Summary().evaluations.empty()) << "nothing is trained yet";
  cluster.Start();
  cluster.Range("w-1");
  cluster.progress("w-1").set_samples(9);
  cluster.progress("w-1").set_samples_applied(7);
  ASSERT_TRUE(cluster.Beat("w-1").ok());
  cluster.Advance(absl::Seconds(2));
  cluster.controller().NoteObserved(report, 15);
  const RunSummary summary = cluster.controller().Summary();
  ASSERT_EQ(summary.evaluations.size(), 1u);
  EXPECT_EQ(summary.evaluations[0].time_s, 2);
  EXPECT_EQ(summary.evaluations[0].samples_applied, 15u);
  EXPECT_EQ(summary.evaluations[0].samples, 17u) << "two were discarded";
}

TEST(ControllerRun, BatchesAreBalancedBySpeedOfComputing) {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_training()->set_batch_size(8);
  job.mutable_training()->set_batch(job::Training::BALANCE);
  job.mutable_training()->set_epochs(10);
  job.mutable_training()->set_evaluate_every_epochs(0);
  FakeCluster cluster(job);
  cluster.Start();
  const auto fast = cluster.Next("w-1"), slow = cluster.Next("w-2");
  ASSERT_TRUE(fast.ok() && fast->has_range() && slow.ok() && slow->has_range());
  EXPECT_EQ(fast->range().batch_size(), 8u);
  for (const char* name : {"w-1", "w-2"}) {
    cluster.progress(name).set_steps(10);
    cluster.progress(name).set_samples(80);
    cluster.progress(name).set_compute_seconds(name == std::string("w-1") ? 1 : 3);
    cluster.progress(name).set_wait_seconds(name == std::string("w-1") ? 2 : 0);
  }
  cluster.Pass(absl::Milliseconds(100));
  EXPECT_EQ(cluster.Next("w-1", fast->range().range())->range().batch_size(), 12u);
  const auto next = cluster.Next("w-2", slow->range().range());
  EXPECT_EQ(next->range().batch_size(), 4u);
  EXPECT_EQ((next->range().end() - next->range().begin()) % 4, 0u);
}

TEST(ControllerRun, AWorkerOfAGroupHasTheBatchOfItsGroup) {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_training()->set_batch_size(8);
  job.mutable_worker()->clear_devices();
  for (const uint32_t batch : {0, 3}) {
    job::WorkerGroup& group = *job.mutable_worker()->add_groups();
    group.set_batch(batch);
    group.add_devices(batch == 0 ? "cuda:0" : "cpu");
  }
  FakeCluster cluster(job);
  for (const char* name : {"ps-1", "ps-2"}) cluster.AddServer(name);
  cluster.AddWorker("w-1", /*group=*/0);
  cluster.AddWorker("w-2", /*group=*/1);
  cluster.Answer();
  ASSERT_EQ(cluster.controller().state(), wire::JOB_TRAINING);
  const auto gpu = cluster.Next("w-1"), cpu = cluster.Next("w-2");
  ASSERT_TRUE(gpu.ok() && gpu->has_range() && cpu.ok() && cpu->has_range());
  EXPECT_EQ(gpu->range().batch_size(), 8u);
  EXPECT_EQ(cpu->range().batch_size(), 3u);
  // Not where an epoch ends.
  EXPECT_EQ((cpu->range().end() - cpu->range().begin()) % 3, cpu->range().end() == 100 ? 2 : 0);
  const wire::JobStatus status = cluster.controller().View();
  ASSERT_EQ(status.workers_size(), 2);
  EXPECT_THAT(status.workers(0).devices(), ::testing::ElementsAre("cuda:0"));
  EXPECT_THAT(status.workers(1).devices(), ::testing::ElementsAre("cpu"));

  wire::RegisterWorkerRequest request = FakeCluster::WorkerRequest("w-3");
  request.set_group(2);
  EXPECT_EQ(cluster.controller().RegisterWorker(request).status(),
            absl::InvalidArgumentError("worker.groups: found 2 as the number of a group; allowed is 0 to 1"));

  FakeCluster next(job);
  ASSERT_TRUE(next.TakeOver(cluster, cluster.Save()).ok());
  EXPECT_EQ(next.Next("w-2")->range().batch_size(), 3u) << "a scheduler that goes on knows the groups";
}

TEST(ControllerRun, EvaluationIsLeftToTheFastWorkerWhileItLives) {
  FakeCluster cluster;
  cluster.Start();
  const uint64_t first = cluster.Range("w-1"), second = cluster.Range("w-2");
  for (const char* name : {"w-1", "w-2"}) {
    cluster.progress(name).set_steps(1);
    cluster.progress(name).set_samples(100);
    cluster.progress(name).set_compute_seconds(name == std::string("w-1") ? 1 : 3);
  }
  cluster.Pass(absl::Milliseconds(100));
  EXPECT_TRUE(cluster.Next("w-1", first)->has_evaluate()) << "of the first epoch, and it is the fast one";
  ASSERT_TRUE(cluster.Evaluated("w-1", 1, /*final=*/false).ok());
  EXPECT_TRUE(cluster.Next("w-2", second)->has_standby()) << "the final evaluation, and it is the slow one";
  EXPECT_TRUE(cluster.Next("w-2")->has_standby());
  cluster.Silence("w-1");
  cluster.Pass(absl::Seconds(2));
  EXPECT_TRUE(cluster.Next("w-2")->evaluate().final()) << "nobody else is left";
}

TEST(ControllerRun, LastReportHasWhatWasTrainedSinceTheLastHeartbeats) {
  FakeCluster cluster;
  cluster.Start();
  const uint64_t first = cluster.Range("w-1");
  const uint64_t second = cluster.Range("w-2");
  for (const char* name : {"w-1", "w-2"}) cluster.progress(name).set_samples(100);
  cluster.Next("w-1", first).IgnoreError();
  ASSERT_TRUE(cluster.Evaluated("w-1", 1, false).ok());
  ASSERT_TRUE(cluster.Next("w-2", second)->evaluate().final());
  ASSERT_TRUE(cluster.Evaluated("w-2", 2, true).ok());
  ASSERT_EQ(cluster.controller().state(), wire::JOB_DONE);
  EXPECT_EQ(cluster.controller().TakeReports().back().samples, 200u);
}

TEST(ControllerRun, OfManyShortEpochsOneNowAndThenIsAnEvent) {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_training()->set_epochs(60);
  job.mutable_training()->set_evaluate_every_epochs(0);
  FakeCluster cluster(job);
  cluster.Start();
  uint64_t range = cluster.Range("w-1");
  for (int epoch = 1; epoch < 60; ++epoch) {
    if (epoch == 40) cluster.Pass(absl::Seconds(6));
    range = cluster.Range("w-1", range);
  }
  EXPECT_TRUE(cluster.Next("w-1", range)->evaluate().final());
  for (int epoch = 1; epoch <= 60; ++epoch) {
    const bool told = epoch == 1 || epoch == 40 || epoch == 60;
    EXPECT_EQ(cluster.HasEvent("epoch " + std::to_string(epoch) + " of 60 is complete"), told) << epoch;
  }
}

TEST(ControllerRun, DeathThatTheCallerHasAnnouncedIsOnlyRecorded) {
  FakeCluster cluster;
  cluster.Start();
  const uint64_t events = cluster.controller().GetStatus().event_count();
  cluster.controller().TakeEvents();
  wire::ReportExitRequest exit;
  exit.set_job(FakeCluster::kJob);
  exit.set_role(wire::MEMBER_ROLE_WORKER);
  exit.set_name("w-1");
  exit.set_reason("killed by signal 9");
  exit.set_announced(true);
  ASSERT_TRUE(cluster.controller().ReportExit(exit).ok());
  EXPECT_EQ(cluster.controller().GetStatus().event_count(), events);
  EXPECT_FALSE(cluster.HasEvent("is dead"));
  EXPECT_THAT(cluster.controller().TakeEvents(), ElementsAre("worker w-1 is dead: killed by signal 9"));
  exit.set_name("w-2");
  exit.set_announced(false);
  ASSERT_TRUE(cluster.controller().ReportExit(exit).ok());
  EXPECT_TRUE(cluster.HasEvent("worker w-2 is dead"));
}

TEST(EventLog, MembersAreCalledByRoleUnlessTheirNameSaysIt) {
  EXPECT_EQ(Called("worker", "w-2"), "worker w-2");
  EXPECT_EQ(Called("worker", "worker-2"), "worker-2");
  EXPECT_EQ(Called("server", "ps-1"), "server ps-1");
}

TEST(ControllerRun, WorkerJoinsInTheMiddle) {
  FakeCluster cluster;
  cluster.Start();
  cluster.AddWorker("w-3");
  EXPECT_EQ(cluster.Beat("w-3")->state(), wire::WORKER_JOINING);
  EXPECT_EQ(cluster.Next("w-3").status().code(), StatusCode::kUnavailable);
  cluster.Answer();
  EXPECT_EQ(cluster.Beat("w-3")->state(), wire::WORKER_LIVE);
  cluster.Range("w-3");
}

TEST(ControllerRun, RangeOfADeadWorkerGoesToOthersOnlyAfterFencing) {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_training()->set_evaluate_every_epochs(0);
  FakeCluster cluster(job);
  cluster.Start();
  cluster.Range("w-1");
  const uint64_t second = cluster.Range("w-2");
  // w-2 has nothing more to do and waits outside the clock.
  EXPECT_TRUE(cluster.Next("w-2", second)->has_standby());
  cluster.Answer();
  cluster.Silence("w-1");
  cluster.Silence("ps-2");  // it neither answers nor is missed yet
  wire::ReportExitRequest exit;
  exit.set_job(FakeCluster::kJob);
  exit.set_role(wire::MEMBER_ROLE_WORKER);
  exit.set_name("w-1");
  exit.set_reason("killed by signal 9");
  ASSERT_TRUE(cluster.controller().ReportExit(exit).ok());
  EXPECT_EQ(cluster.StateOf("w-1"), "dead");
  EXPECT_TRUE(cluster.HasEvent("w-1 is dead: killed by signal 9"));
  cluster.Answer();  // ps-1 only
  EXPECT_TRUE(cluster.Next("w-2")->has_standby());
  cluster.member("ps-2").beats = true;
  cluster.Answer();
  EXPECT_EQ(cluster.Next("w-2").status().code(), StatusCode::kFailedPrecondition);
  cluster.Rejoin("w-2");
  cluster.Answer();
  cluster.Range("w-2");
}

TEST(ControllerRun, SilentWorkerDiesAfterSixteenHeartbeatsAndTheOthersGoOn) {
  FakeCluster cluster;
  cluster.Start();
  cluster.Range("w-1");
  cluster.Silence("w-1");
  cluster.Pass(absl::Milliseconds(1600));
  EXPECT_EQ(cluster.StateOf("w-1"), "live");
  cluster.Pass(absl::Milliseconds(100));
  EXPECT_EQ(cluster.StateOf("w-1"), "dead");
  EXPECT_EQ(cluster.Beat("w-1").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(cluster.controller().state(), wire::JOB_TRAINING);
  cluster.Range("w-2");
}

TEST(ControllerRun, FinalEvaluationOfADeadWorkerGoesToAStandbyOne) {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_training()->set_evaluate_every_epochs(0);
  FakeCluster cluster(job);
  cluster.Start();
  const uint64_t first = cluster.Range("w-1");
  const uint64_t second = cluster.Range("w-2");
  EXPECT_TRUE(cluster.Next("w-2", second)->has_standby());
  EXPECT_TRUE(cluster.Next("w-1", first)->evaluate().final());
  cluster.Silence("w-1");
  EXPECT_TRUE(cluster.Next("w-2")->has_standby());
  cluster.Pass(absl::Seconds(2));
  EXPECT_TRUE(cluster.Next("w-2")->evaluate().final());
  cluster.Pass(absl::Seconds(1));
  const RunSummary summary = cluster.controller().Summary();
  EXPECT_GE(summary.time_s, summary.train_s + 1) << "the final evaluation is not training";
}

TEST(ControllerRun, StalledWorkerIsExpelledThoughItsHeartbeatsCome) {
  FakeCluster cluster;
  cluster.Start();
  cluster.Range("w-1");
  cluster.Range("w-2");
  // w-2 only waits for the servers, that is for w-1.
  for (const char* name : {"w-1", "w-2"}) cluster.progress(name).set_idle_ms(70000);
  cluster.progress("w-2").set_waiting(true);
  cluster.Pass(absl::Seconds(59));
  EXPECT_EQ(cluster.StateOf("w-1"), "live");
  cluster.Pass(absl::Seconds(2));
  EXPECT_EQ(cluster.StateOf("w-1"), "dead");
  EXPECT_EQ(cluster.StateOf("w-2"), "live");
  EXPECT_TRUE(cluster.HasEvent("made no step"));
}

TEST(ControllerRun, WorkerForWhomAllWaitIsExpelledThoughItSaysThatItWaits) {
  FakeCluster cluster;
  cluster.Start();
  cluster.Range("w-1");
  cluster.Range("w-2");
  const auto all_wait = [&](uint64_t clock_of_first, uint64_t clock_of_second) {
    cluster.progress("w-1").set_clock(clock_of_first);
    cluster.progress("w-2").set_clock(clock_of_second);
    for (const char* name : {"w-1", "w-2"}) {
      cluster.progress(name).set_idle_ms(1000000);
      cluster.progress(name).set_waiting(true);
    }
  };
  all_wait(7, 7);
  cluster.Pass(absl::Minutes(11));
  EXPECT_EQ(cluster.StateOf("w-1"), "live") << "both may wait for a server";
  all_wait(7, 9);
  cluster.progress("w-2").set_samples(100);
  cluster.progress("w-2").set_steps(1);
  cluster.Pass(absl::Minutes(9));
  EXPECT_EQ(cluster.StateOf("w-1"), "live");
  cluster.Pass(absl::Minutes(2));
  EXPECT_EQ(cluster.StateOf("w-1"), "dead");
  EXPECT_EQ(cluster.StateOf("w-2"), "live");
  EXPECT_TRUE(cluster.HasEvent("all workers wait, and nothing was trained for 10m; its clock, 7, is the smallest"));
}

TEST(ControllerRun, InAsyncAWorkerThatWaitsHoldsUpNobody) {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_consistency()->set_mode(job::Consistency::ASYNC);
  FakeCluster cluster(job);
  cluster.Start();
  cluster.Range("w-1");
  cluster.Range("w-2");
  for (const char* name : {"w-1", "w-2"}) cluster.progress(name).set_waiting(true);
  cluster.progress("w-2").set_clock(9);
  cluster.Pass(absl::Minutes(30));
  EXPECT_EQ(cluster.StateOf("w-1"), "live");
}

TEST(ControllerRun, WorkerWithALocalTaskMayBeSilentForItsLease) {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_local()->set_steps(1);
  job.mutable_local()->set_lease_s(90);
  job.mutable_consistency()->set_mode(job::Consistency::ASYNC);
  FakeCluster cluster(job);
  cluster.Start();
  cluster.Range("w-1");
  // Silent, and stalled.
  cluster.Silence("w-1");
  cluster.Range("w-2");
  cluster.progress("w-2").set_idle_ms(1000000);
  cluster.Pass(absl::Seconds(89));
  EXPECT_EQ(cluster.StateOf("w-1"), "live");
  EXPECT_EQ(cluster.StateOf("w-2"), "live");
  cluster.Pass(absl::Seconds(2));
  EXPECT_EQ(cluster.StateOf("w-1"), "dead");
  EXPECT_TRUE(cluster.HasEvent("its lease is over"));
  EXPECT_EQ(cluster.StateOf("w-2"), "dead") << "it has made no step";
}

TEST(ControllerRun, SlowStepsAreNoStall) {
  FakeCluster cluster;
  cluster.Start();
  cluster.Range("w-1");
  cluster.progress("w-1").set_idle_ms(70000);
  cluster.progress("w-1").set_step_ms_median(4000);
  cluster.Pass(absl::Seconds(65));
  EXPECT_EQ(cluster.StateOf("w-1"), "live");
}

TEST(ControllerRun, WorkerThatLeavesInGoodOrderIsNoDeath) {
  FakeCluster cluster;
  cluster.Start();
  cluster.Range("w-1");
  wire::HeartbeatRequest last;
  last.set_job(FakeCluster::kJob);
  last.set_role(wire::MEMBER_ROLE_WORKER);
  last.set_member(cluster.member("w-1").id);
  last.set_incarnation(cluster.member("w-1").incarnation);
  last.set_leaving(true);
  last.set_leaving_reason("told to stop");
  ASSERT_TRUE(cluster.controller().Heartbeat(last).ok());
  EXPECT_EQ(cluster.StateOf("w-1"), "left");
  cluster.Answer();
  EXPECT_TRUE(cluster.HasEvent("go to others"));
}

TEST(ControllerRun, WhatHasItsAnswersStaysWithAWorkerThatLeaves) {
  FakeCluster cluster;
  cluster.Start();
  wire::HeartbeatRequest last;
  last.set_job(FakeCluster::kJob);
  last.set_role(wire::MEMBER_ROLE_WORKER);
  last.set_member(cluster.member("w-1").id);
  last.set_incarnation(cluster.member("w-1").incarnation);
  last.set_leaving(true);
  last.set_range(cluster.Range("w-1"));
  last.set_range_done_to(101);
  const absl::Status beyond = cluster.controller().Heartbeat(last).status();
  EXPECT_EQ(beyond.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(beyond.message()), HasSubstr("trained range 1 up to 101; allowed is 0 to 100"));
  EXPECT_EQ(cluster.StateOf("w-1"), "live");
  last.set_range_done_to(30);
  ASSERT_TRUE(cluster.controller().Heartbeat(last).ok());
  EXPECT_EQ(cluster.StateOf("w-1"), "left");
  cluster.Answer();
  EXPECT_TRUE(cluster.HasEvent("the 70 samples that worker w-1 held go to others"));
}

TEST(ControllerRun, WorkerThatComesBackKeepsWhatItHadTrained) {
  FakeCluster cluster;
  cluster.Start();
  const uint64_t range = cluster.Range("w-1");
  cluster.Range("w-2");
  cluster.progress("w-1").set_samples(100);
  EXPECT_TRUE(cluster.Next("w-1", range)->has_evaluate());
  ASSERT_TRUE(cluster.Evaluated("w-1", 1, false).ok());
  EXPECT_TRUE(cluster.Next("w-1")->has_standby());
  cluster.Rejoin("w-1");
  cluster.progress("w-1").set_samples(30);
  ASSERT_TRUE(cluster.Beat("w-1").ok());
  const wire::GetStatusReply status = cluster.controller().GetStatus();
  for (const wire::MemberStatus& member : status.members()) {
    EXPECT_EQ(member.samples(), member.name() == "w-1" ? 130u : 0u) << member.name();
  }
}

TEST(ControllerRun, ReportsComeAtTheirInterval) {
  FakeCluster cluster;
  cluster.Start();
  cluster.Range("w-1");
  cluster.progress("w-1").set_samples(50);
  cluster.progress("w-1").set_loss_sum(25);
  cluster.Pass(absl::Seconds(3));
  const std::vector<Report> reports = cluster.controller().TakeReports();
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_DOUBLE_EQ(*reports[0].loss, 0.5);
  EXPECT_EQ(reports[0].live_workers, 2u);
  EXPECT_DOUBLE_EQ(reports[2].time_s, 3);
  EXPECT_TRUE(cluster.controller().TakeReports().empty());
}

// SIGSTOP, a suspended machine: what nobody could have said to it, nobody has kept from it.
TEST(ControllerRun, OwnSleepIsNobodysSilence) {
  FakeCluster cluster;
  cluster.Start();
  cluster.Pass(absl::Seconds(1));
  cluster.Silence("w-2");
  cluster.Pass(absl::Seconds(1));
  cluster.Advance(absl::Hours(1));
  cluster.controller().Tick();
  EXPECT_TRUE(cluster.HasEvent("the scheduler itself stood still for 1h"));
  EXPECT_EQ(cluster.StateOf("ps-1"), "live");
  EXPECT_EQ(cluster.StateOf("w-1"), "live");
  EXPECT_EQ(cluster.StateOf("w-2"), "live");
  cluster.Pass(absl::Milliseconds(500));
  EXPECT_EQ(cluster.StateOf("w-2"), "live") << "1.5 s of its own";
  cluster.Pass(absl::Milliseconds(300));
  EXPECT_EQ(cluster.StateOf("w-2"), "dead");
  EXPECT_EQ(cluster.StateOf("w-1"), "live");
}

}  // namespace
}  // namespace slackline::scheduler::controller_run_test
