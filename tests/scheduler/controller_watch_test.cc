// Reactions of the scheduler to the course of training: expelled workers, the staleness bound, divergence, early
// stopping, and workers that wait for room on a disk.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/scheduler/fake_cluster.h"

namespace slackline::scheduler::controller_watch_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

job::Job AutomaticBound() {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_consistency()->set_staleness_auto(true);
  job.mutable_consistency()->set_staleness_max(8);
  return job;
}

// Both workers have made 20 more steps, and waited for half of their time.
void TrainWaiting(FakeCluster& cluster, absl::Duration time) {
  for (const char* name : {"w-1", "w-2"}) {
    wire::WorkerProgress& progress = cluster.progress(name);
    progress.set_steps(progress.steps() + 20);
    progress.set_compute_seconds(progress.compute_seconds() + 1);
    progress.set_wait_seconds(progress.wait_seconds() + 1);
    progress.set_slack_max(8);
  }
  cluster.Pass(time);
}

// w-1 has a range and makes no step until it is expelled; then it joins again. w-2 waits for servers all the time.
void Stall(FakeCluster& cluster) {
  cluster.Range("w-1");
  cluster.progress("w-1").set_idle_ms(70000);
  cluster.Pass(absl::Seconds(59));
  ASSERT_EQ(cluster.StateOf("w-1"), "live");
  cluster.Pass(absl::Seconds(2));
  ASSERT_EQ(cluster.StateOf("w-1"), "dead");
}

TEST(ControllerWatch, WorkerThatIsExpelledAgainAndAgainEndsTheJobWithTheSetting) {
  FakeCluster cluster;
  cluster.Start();
  cluster.Range("w-2");
  cluster.progress("w-2").set_waiting(true);
  Stall(cluster);
  EXPECT_TRUE(
      cluster.HasEvent("it has made no step for 1m0.1s; allowed is 1m. If its steps take so long, set "
                       "timeouts.stall_ms: 121000; else its log says what it waits for"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(cluster.controller().state(), wire::JOB_TRAINING);
    cluster.Rejoin("w-1");
    cluster.Answer();
    Stall(cluster);
  }
  const wire::GetStatusReply status = cluster.controller().GetStatus();
  EXPECT_EQ(status.state(), wire::JOB_FAILED);
  EXPECT_THAT(status.reason(), AllOf(HasSubstr("worker w-1 was expelled 3 times in a row, and nothing was trained"),
                                     HasSubstr("set timeouts.stall_ms: 121000")));
}

TEST(ControllerWatch, OneWorkerThatIsExpelledAgainAndAgainDoesNotEndAJobThatTrains) {
  FakeCluster cluster;
  cluster.Start();
  cluster.Range("w-2");
  cluster.progress("w-2").set_waiting(true);
  for (int i = 0; i < 5; ++i) {
    Stall(cluster);
    cluster.progress("w-2").set_samples(10 * (i + 1));
    cluster.Rejoin("w-1");
    cluster.Answer();
  }
  EXPECT_EQ(cluster.controller().state(), wire::JOB_TRAINING);
}

TEST(ControllerWatch, BoundTravelsToTheServersUnderANewEpochAndIsAnEvent) {
  FakeCluster cluster(AutomaticBound());
  cluster.Start();
  for (const char* name : {"w-1", "w-2"}) cluster.Range(name);
  cluster.Pass(absl::Seconds(1));
  for (auto& [id, told] : cluster.servers().told()) ASSERT_FALSE(told.members);
  cluster.Silence("ps-2");  // it does not answer: its request stays
  TrainWaiting(cluster, absl::Seconds(1));
  const auto& members = cluster.servers().told().at(ServerId(2)).members;
  ASSERT_TRUE(members);
  EXPECT_EQ(members->staleness_bound(), 2u);
  EXPECT_TRUE(members->has_since_epoch());
  EXPECT_EQ(members->members_size(), 0);
  EXPECT_TRUE(cluster.HasEvent("the bound of ssp goes from 1 to 2: workers wait 50 % of their time"));
  const std::vector<Report> reports = cluster.controller().TakeReports();
  EXPECT_EQ(reports.back().staleness_bound, 2u);
  EXPECT_EQ(reports.back().staleness_bound_changes, 1u);
  EXPECT_EQ(cluster.controller().Summary().staleness_bound, 2u);
  // Nobody lost anything by it.
  EXPECT_EQ(cluster.StateOf("w-1"), "live");
  EXPECT_EQ(cluster.Beat("w-1")->state(), wire::WORKER_LIVE);
}

TEST(ControllerWatch, ReportsHaveTheLearningRateOfTheSchedule) {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_optimizer()->set_lr(0.5);
  job.mutable_optimizer()->mutable_schedule()->set_kind(job::Schedule::STEP);
  job.mutable_optimizer()->mutable_schedule()->set_every_epochs(0.5);
  job.mutable_optimizer()->mutable_schedule()->set_gamma(0.25);
  FakeCluster cluster(job);
  cluster.Start();
  cluster.Range("w-1");
  cluster.progress("w-1").set_samples(49);
  cluster.Pass(absl::Seconds(1));
  cluster.progress("w-1").set_samples(51);
  cluster.Pass(absl::Seconds(1));
  const std::vector<Report> reports = cluster.controller().TakeReports();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_DOUBLE_EQ(reports[0].learning_rate, 0.5);
  EXPECT_DOUBLE_EQ(reports[1].learning_rate, 0.125);
}

TEST(ControllerWatch, FewStepsOrLittleTimeDecideNothing) {
  FakeCluster cluster(AutomaticBound());
  cluster.Start();
  for (const char* name : {"w-1", "w-2"}) {
    cluster.Range(name);
    cluster.progress(name).set_steps(7);
    cluster.progress(name).set_wait_seconds(5);
    cluster.progress(name).set_slack_max(8);
  }
  cluster.Pass(absl::Seconds(10));
  EXPECT_EQ(cluster.controller().Summary().staleness_bound, 1u);
  for (const char* name : {"w-1", "w-2"}) cluster.progress(name).set_steps(8);
  cluster.Pass(absl::Seconds(1));
  EXPECT_EQ(cluster.controller().Summary().staleness_bound, 2u);
}

TEST(ControllerWatch, FixedBoundIsSentAndStays) {
  FakeCluster cluster;
  cluster.AddServer("ps-1");
  cluster.AddWorker("w-1");
  EXPECT_EQ(cluster.servers().told().at(ServerId(1)).members->staleness_bound(), 4u);
  cluster.AddServer("ps-2");
  cluster.AddWorker("w-2");
  cluster.Answer();
  TrainWaiting(cluster, absl::Seconds(5));
  EXPECT_EQ(cluster.controller().Summary().staleness_bound, 4u);
  EXPECT_EQ(cluster.controller().Summary().staleness_bound_changes, 0u);
}

// A loss above 3 is too much, and so is any gradient of a norm above 100.
job::Job Guarded(job::Guard::Action action) {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_training()->set_batch_size(1);  // a mean is of 16 samples
  job.mutable_guard()->set_loss_max(3);
  job.mutable_guard()->set_gradient_norm_max(100);
  job.mutable_guard()->set_action(action);
  return job;
}

void TrainWithLoss(FakeCluster& cluster, double loss) {
  wire::WorkerProgress& progress = cluster.progress("w-1");
  progress.set_steps(progress.steps() + 1);
  progress.set_samples(progress.samples() + 16);
  progress.set_loss_sum(progress.loss_sum() + 16 * loss);
  cluster.Pass(absl::Milliseconds(100));
}

TEST(ControllerWatch, DivergenceIsAnEventAndCountedEachTimeItBegins) {
  FakeCluster cluster(Guarded(job::Guard::WARN));
  cluster.Start();
  for (const double loss : {2.0, 5.0, 6.0, 1.0}) TrainWithLoss(cluster, loss);
  EXPECT_TRUE(cluster.HasEvent("warning: training diverges: the mean loss is 5, guard.loss_max is 3"));
  cluster.progress("w-1").set_gradient_norm_max(200);
  TrainWithLoss(cluster, 1);
  EXPECT_TRUE(cluster.HasEvent("a gradient has the norm 200"));
  EXPECT_EQ(cluster.controller().state(), wire::JOB_TRAINING);
  cluster.Pass(absl::Seconds(1));
  EXPECT_EQ(cluster.controller().TakeReports().back().divergences, 2u);
  EXPECT_EQ(cluster.controller().Summary().divergences, 2u);
  EXPECT_EQ(cluster.controller().Summary().staleness_bound, 4u);
}

TEST(ControllerWatch, DivergenceTightensTheBoundForGood) {
  FakeCluster cluster(Guarded(job::Guard::TIGHTEN));
  cluster.Start();
  TrainWithLoss(cluster, 5);
  EXPECT_EQ(cluster.controller().Summary().staleness_bound, 1u);
  EXPECT_TRUE(cluster.HasEvent("the bound of ssp goes from 4 to 1: the mean loss is 5"));
  EXPECT_EQ(cluster.controller().state(), wire::JOB_TRAINING);
}

TEST(ControllerWatch, DivergenceFailsTheJobAndNamesTheLastEvaluation) {
  FakeCluster cluster(Guarded(job::Guard::STOP));
  cluster.Start();
  TrainWithLoss(cluster, 5);
  EXPECT_EQ(cluster.controller().state(), wire::JOB_FAILED);
  EXPECT_THAT(
      cluster.controller().GetStatus().reason(),
      testing::HasSubstr("training diverges: the mean loss is 5, guard.loss_max is 3; nothing was evaluated yet, "
                         "and no checkpoint was made"));
}

TEST(ControllerWatch, StopNamesTheEpochThatWasEvaluatedLast) {
  job::Job job = Guarded(job::Guard::STOP);
  job.mutable_training()->set_batch_size(100);
  FakeCluster cluster(job);
  cluster.Start();
  const uint64_t range = cluster.Range("w-1");
  EXPECT_TRUE(cluster.Next("w-1", range)->has_evaluate());
  ASSERT_TRUE(cluster.Evaluated("w-1", 1, false).ok());
  cluster.progress("w-1").set_gradient_norm_max(200);
  TrainWithLoss(cluster, 1);
  EXPECT_THAT(cluster.controller().GetStatus().reason(),
              testing::HasSubstr("the last evaluation was after epoch 1 (test accuracy 90.00 %"));
}

TEST(ControllerWatch, AnAccuracyThatWasNotMeasuredIsMissing) {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_model()->set_kind(job::Model::EXTERNAL);
  job.mutable_training()->set_epochs(3);
  job.mutable_training()->set_evaluate_every_epochs(1);
  job.mutable_training()->set_batch_size(100);
  job.mutable_training()->mutable_early_stopping()->set_patience(1);
  FakeCluster cluster(job);
  cluster.Start();
  uint64_t range = cluster.Range("w-1");
  const std::string warning = "warning: evaluations report loss and no accuracy";
  for (const uint32_t epoch : {1, 2}) {
    ASSERT_TRUE(cluster.Next("w-1", range)->has_evaluate());
    ASSERT_TRUE(cluster.Evaluated("w-1", epoch, false, std::nullopt).ok());
    EXPECT_TRUE(cluster.HasEvent(absl::StrCat("epoch ", epoch, ": test loss 0.0000 on 10 samples (worker w-1)")));
    range = cluster.Range("w-1");
  }
  const wire::GetStatusReply status = cluster.controller().GetStatus();
  EXPECT_EQ(std::count_if(status.events().begin(), status.events().end(),
                          [&](const std::string& event) { return absl::StartsWith(event, warning); }),
            1);
  EXPECT_FALSE(status.has_test_accuracy());
  EXPECT_TRUE(status.has_test_loss());
  const wire::JobProgress progress = cluster.controller().View().progress();
  EXPECT_FALSE(progress.has_test_accuracy());
  EXPECT_TRUE(progress.has_test_loss());
  EXPECT_FALSE(cluster.controller().Summary().evaluations[0].accuracy);
  size_t with_loss = 0;
  for (const Report& report : cluster.controller().TakeReports()) {
    EXPECT_FALSE(report.test_accuracy);
    with_loss += report.test_loss.has_value();
  }
  EXPECT_EQ(with_loss, 2u);
}

TEST(ControllerWatch, FiguresOfAScriptReachWhoeverAsks) {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_model()->set_kind(job::Model::EXTERNAL);
  job.mutable_training()->set_epochs(4);
  job.mutable_training()->set_evaluate_every_epochs(1);
  job.mutable_training()->set_batch_size(100);
  job.mutable_training()->mutable_metric()->set_name("perplexity");
  job.mutable_training()->mutable_metric()->set_better(job::ComparedMetric::LOWER);
  job.mutable_training()->mutable_early_stopping()->set_patience(1);
  FakeCluster cluster(job);
  cluster.Start();
  const double kNoNumber = std::numeric_limits<double>::quiet_NaN();
  uint64_t range = cluster.Range("w-1");
  AddNamedValues({{"perplexity", 40}}, cluster.progress("w-1").mutable_values());
  for (const auto& [epoch, perplexity] : {std::pair(1u, 20.5), std::pair(2u, 25.0)}) {
    ASSERT_TRUE(cluster.Next("w-1", range)->has_evaluate());
    ASSERT_TRUE(cluster
                    .Evaluated("w-1", epoch, false, std::nullopt, std::nullopt, 0,
                               {{"perplexity", perplexity}, {"Not a name", 1}, {"no_number", kNoNumber}})
                    .ok());
    EXPECT_TRUE(cluster.HasEvent(
        absl::StrCat("epoch ", epoch, ": test perplexity ", perplexity, ", loss 0.0000 on 10 samples (worker w-1)")));
    if (epoch == 1) range = cluster.Range("w-1");
  }
  EXPECT_TRUE(
      cluster.HasEvent("training ends early, after what is under way: 1 evaluation did not better it: the best is test "
                       "perplexity 20.5"));
  for (const wire::JobMetric& metric :
       {cluster.controller().GetStatus().metric(), cluster.controller().View().progress().metric(),
        cluster.controller().Summary().metric}) {
    EXPECT_EQ(metric.name(), "perplexity");
    EXPECT_TRUE(metric.lower_is_better());
    EXPECT_EQ(metric.last(), 25);
    EXPECT_EQ(metric.best(), 20.5);
  }
  EXPECT_EQ(cluster.controller().Summary().evaluations[0].values, NamedValues({{"perplexity", 20.5}}));
  const wire::JobStatus view = cluster.controller().View();
  EXPECT_THAT(view.curve().metric(), testing::ElementsAre(20.5, 25));
  EXPECT_EQ(NamedValuesIn(view.progress().test_values()), NamedValues({{"perplexity", 25}}));
  std::vector<NamedValues> tested;
  NamedValues trained;
  for (const Report& report : cluster.controller().TakeReports()) {
    if (!report.test_values.empty()) tested.push_back(report.test_values);
    if (!report.train_values.empty()) trained = report.train_values;
  }
  EXPECT_THAT(tested, testing::ElementsAre(NamedValues({{"perplexity", 20.5}}), NamedValues({{"perplexity", 25}})));
  EXPECT_EQ(trained, NamedValues({{"perplexity", 40}}));
}

class ControllerRoom : public testing::Test {
 protected:
  ControllerRoom() : cluster_(Short()) {
    cluster_.Start();
    cluster_.progress("w-1").set_waits_for("room for the results of the run: no space in /runs");
    cluster_.Pass(absl::Milliseconds(400));
  }
  static job::Job Short() {
    job::Job job = FakeCluster::SmallJob();
    job.mutable_checkpoint()->set_timeout_s(5);
    return job;
  }

  FakeCluster cluster_;
};

TEST_F(ControllerRoom, AWorkerThatWaitsForItIsNamedAndGoesOn) {
  EXPECT_TRUE(cluster_.HasEvent("warning: worker w-1 waits for room for the results of the run: no space in /runs"));
  const wire::GetStatusReply status = cluster_.controller().GetStatus();
  for (const wire::MemberStatus& member : status.members()) {
    if (member.name() != "w-1") continue;
    EXPECT_EQ(member.reason(), "waits for room for the results of the run: no space in /runs");
  }
  cluster_.Pass(absl::Seconds(4));
  cluster_.progress("w-1").clear_waits_for();
  cluster_.Pass(absl::Seconds(4));
  EXPECT_TRUE(cluster_.HasEvent("worker w-1 waits no more"));
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_TRAINING);
}

TEST_F(ControllerRoom, AWorkerThatGoesOnDoesNotTakeBackWhatAnotherHasWaited) {
  cluster_.Pass(absl::Seconds(3));
  for (const char* const what : {"room for a trace: no space in /tmp", "", "room for a trace: no space in /tmp"}) {
    cluster_.progress("w-2").set_waits_for(what);
    cluster_.Pass(absl::Milliseconds(200));
  }
  EXPECT_TRUE(cluster_.HasEvent("worker w-2 waits no more"));
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_TRAINING);
  cluster_.Pass(absl::Seconds(1.5));
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_FAILED);
}

TEST_F(ControllerRoom, WhatAWorkerWaitedThatDiedLongAgoCountsForNobody) {
  cluster_.Silence("w-1");
  cluster_.Pass(absl::Seconds(10));
  ASSERT_EQ(cluster_.StateOf("w-1"), "dead");
  cluster_.progress("w-2").set_waits_for("room for the results of the run: no space in /runs");
  cluster_.Pass(absl::Seconds(4));
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_TRAINING) << cluster_.controller().GetStatus().reason();
  cluster_.Pass(absl::Seconds(2));
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_FAILED);
}

TEST_F(ControllerRoom, TheJobFailsWhereThereIsNoneForTooLongWhoeverTries) {
  cluster_.Pass(absl::Seconds(3));
  cluster_.Silence("w-1");
  cluster_.progress("w-2").set_waits_for("room for the results of the run: no space in /runs");
  cluster_.Pass(absl::Seconds(1));
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_TRAINING);
  cluster_.Pass(absl::Seconds(2));
  EXPECT_EQ(cluster_.controller().state(), wire::JOB_FAILED);
  EXPECT_THAT(cluster_.controller().GetStatus().reason(),
              testing::AllOf(
                  testing::HasSubstr("for room for the results of the run: no space in /runs; free some space there"),
                  testing::HasSubstr("`slackline resume`")));
}

}  // namespace
}  // namespace slackline::scheduler::controller_watch_test
