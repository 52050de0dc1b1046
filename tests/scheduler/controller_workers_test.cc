// Registration of workers, and what remains of workers that have gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/scheduler/fake_cluster.h"

namespace slackline::scheduler::controller_workers_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

wire::RegisterWorkerRequest Registration(const std::string& name, uint64_t instance, uint32_t pid,
                                         const std::string& host) {
  wire::RegisterWorkerRequest request = FakeCluster::WorkerRequest(name);
  request.set_instance(instance);
  request.set_pid(pid);
  request.set_host(host);
  return request;
}

// Worker w-1 is process 1 on node-a.
class ControllerWorkers : public testing::Test {
 protected:
  void Begin(uint64_t instance, uint32_t pid = 1) {
    for (const char* name : {"ps-1", "ps-2"}) cluster_.AddServer(name);
    Add(Registration("w-1", instance, pid, "node-a"));
    cluster_.AddWorker("w-2");
    cluster_.Answer();
    cluster_.Pass(absl::Milliseconds(100));
  }
  void Add(const wire::RegisterWorkerRequest& request) {
    const auto reply = cluster_.controller().RegisterWorker(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
    first_ = *reply;
    cluster_.Adopt({wire::MEMBER_ROLE_WORKER, request.name(), reply->worker(), reply->incarnation()});
  }
  // Asks in every T until the answer is another than "ask again".
  absl::StatusOr<wire::RegisterWorkerReply> AskUntilAnswered(const wire::RegisterWorkerRequest& request) {
    for (int i = 0; i < 20; ++i) {
      auto reply = cluster_.controller().RegisterWorker(request);
      if (!absl::IsUnavailable(reply.status())) return reply;
      cluster_.Pass(absl::Milliseconds(100));
    }
    return absl::DeadlineExceededError("asked to ask again for ever");
  }

  FakeCluster cluster_;
  wire::RegisterWorkerReply first_;
};

TEST_F(ControllerWorkers, SecondProcessOfALivingWorkersNameIsRefusedAndChangesNothing) {
  Begin(/*instance=*/11);
  const auto second = AskUntilAnswered(Registration("w-1", 22, 1, "node-b"));
  EXPECT_TRUE(absl::IsAlreadyExists(second.status())) << second.status();
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr("worker w-1 is there already: process 1 on node-a"),
                    HasSubstr("this is process 1 on node-b"), HasSubstr("--name")));
  EXPECT_EQ(cluster_.StateOf("w-1"), "live");
  EXPECT_EQ(cluster_.member("w-1").incarnation, first_.incarnation());
  EXPECT_TRUE(cluster_.Beat("w-1").ok());
  EXPECT_TRUE(cluster_.HasEvent("warning: worker w-1 is there already"));
  // A third one hears the same, and so does the second when it is started anew.
  EXPECT_TRUE(absl::IsAlreadyExists(AskUntilAnswered(Registration("w-1", 33, 1, "node-c")).status()));
  EXPECT_TRUE(absl::IsAlreadyExists(AskUntilAnswered(Registration("w-1", 44, 1, "node-b")).status()));
}

TEST_F(ControllerWorkers, OlderPeersAreToldApartByHostAndProcess) {
  Begin(/*instance=*/0);
  EXPECT_TRUE(absl::IsAlreadyExists(AskUntilAnswered(Registration("w-1", 0, 1, "node-b")).status()));
  EXPECT_TRUE(absl::IsAlreadyExists(AskUntilAnswered(Registration("w-1", 0, 2, "node-a")).status()));
  const auto same = cluster_.controller().RegisterWorker(Registration("w-1", 0, 1, "node-a"));
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->worker(), first_.worker());
}

TEST_F(ControllerWorkers, PeersThatSayNothingOfTheirProcessAreAllTaken) {
  Begin(/*instance=*/0, /*pid=*/0);
  const auto second = cluster_.controller().RegisterWorker(Registration("w-1", 0, 0, "node-a"));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(second->worker(), first_.worker());
}

TEST_F(ControllerWorkers, SameProcessKeepsItsNumberWhateverBecameOfItsReply) {
  Begin(/*instance=*/11);
  const auto again = cluster_.controller().RegisterWorker(Registration("w-1", 11, 1, "node-a"));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->worker(), first_.worker());
  EXPECT_GT(again->incarnation(), first_.incarnation());
}

// Its container has the same name, host and process id; nothing was heard of its death.
TEST_F(ControllerWorkers, RestartedProcessTakesThePlaceOfTheSilentOne) {
  Begin(/*instance=*/11);
  cluster_.Silence("w-1");
  const auto again = AskUntilAnswered(Registration("w-1", 22, 1, "node-a"));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->worker(), first_.worker());
  EXPECT_GT(again->incarnation(), first_.incarnation());
  EXPECT_TRUE(absl::IsFailedPrecondition(cluster_.Beat("w-1").status())) << "of the life before";
}

// The first was put out, for a stall or by a supervisor's mistake, and wants to come back.
TEST_F(ControllerWorkers, WorkerWhoseNameWasTakenMeanwhileIsTheOneThatIsRefused) {
  Begin(/*instance=*/11);
  wire::ReportExitRequest exit;
  exit.set_job(FakeCluster::kJob);
  exit.set_role(wire::MEMBER_ROLE_WORKER);
  exit.set_name("w-1");
  ASSERT_TRUE(cluster_.controller().ReportExit(exit).ok());
  wire::RegisterWorkerRequest back = Registration("w-1", 11, 1, "node-a");
  back.set_worker(first_.worker());
  back.set_incarnation(first_.incarnation());
  Add(Registration("w-1", 22, 1, "node-b"));
  const uint64_t second = first_.incarnation();
  EXPECT_TRUE(absl::IsAlreadyExists(AskUntilAnswered(back).status()));
  EXPECT_EQ(cluster_.member("w-1").incarnation, second);
  EXPECT_TRUE(cluster_.Beat("w-1").ok());
}

TEST_F(ControllerWorkers, NameOfADeadWorkerIsFreeAtOnce) {
  Begin(/*instance=*/11);
  wire::ReportExitRequest exit;
  exit.set_job(FakeCluster::kJob);
  exit.set_role(wire::MEMBER_ROLE_WORKER);
  exit.set_name("w-1");
  ASSERT_TRUE(cluster_.controller().ReportExit(exit).ok());
  EXPECT_TRUE(cluster_.controller().RegisterWorker(Registration("w-1", 22, 9, "node-a")).ok());
}

TEST_F(ControllerWorkers, ProcessesAreToldApartByARestartedSchedulerToo) {
  Begin(/*instance=*/11);
  FakeCluster after;
  ASSERT_TRUE(after.TakeOver(cluster_, cluster_.Save()).ok());
  EXPECT_TRUE(absl::IsUnavailable(after.controller().RegisterWorker(Registration("w-1", 22, 1, "node-a")).status()));
  const auto same = after.controller().RegisterWorker(Registration("w-1", 11, 1, "node-a"));
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->worker(), first_.worker());
}

// A scheduler that stood still has heard nobody meanwhile, and takes nobody for silent.
TEST_F(ControllerWorkers, OwnSleepDecidesNothing) {
  Begin(/*instance=*/11);
  const wire::RegisterWorkerRequest request = Registration("w-1", 22, 1, "node-a");
  EXPECT_TRUE(absl::IsUnavailable(cluster_.controller().RegisterWorker(request).status()));
  cluster_.Silence("w-1");
  cluster_.Advance(absl::Seconds(1));
  cluster_.controller().Tick();
  EXPECT_TRUE(absl::IsUnavailable(cluster_.controller().RegisterWorker(request).status()));
}

TEST_F(ControllerWorkers, TextsThatAreTooLongAreRefused) {
  wire::RegisterWorkerRequest request = FakeCluster::WorkerRequest("w-1");
  request.set_host(std::string(257, 'h'));
  const auto refused = cluster_.controller().RegisterWorker(request);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("257 bytes"));
}

// Names stand in logs, in metrics and in names of files.
TEST_F(ControllerWorkers, NamesThatAreNoneAreRefused) {
  for (const std::string& name :
       {std::string(), std::string("a/b"), std::string("a\nb"), std::string("\x1b[31m"), std::string(65, 'n')}) {
    const auto refused = cluster_.controller().RegisterWorker(FakeCluster::WorkerRequest(name));
    EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << name << ": " << refused.status();
  }
  EXPECT_TRUE(cluster_.controller().RegisterWorker(FakeCluster::WorkerRequest(std::string(64, 'n'))).ok());
}

// Spot machines come and go by the thousand.
TEST_F(ControllerWorkers, OfThoseThatLeftLongAgoTheCountsStay) {
  Begin(/*instance=*/11);
  constexpr uint32_t kVisitors = 1500;
  for (uint32_t i = 0; i < kVisitors; ++i) {
    const std::string name = absl::StrCat("spot-", i);
    cluster_.progress(name).set_samples(10);
    cluster_.progress(name).set_steps(1);
    cluster_.AddWorker(name);
    cluster_.Answer();
    ASSERT_TRUE(cluster_.Beat(name).ok());
    ASSERT_TRUE(cluster_.Leave(name).ok());
  }
  cluster_.Answer();
  cluster_.Pass(absl::Milliseconds(100));
  const auto check = [&](FakeCluster& cluster) {
    const wire::GetStatusReply status = cluster.controller().GetStatus();
    EXPECT_EQ(status.members_size(), 2 + 2 + 1000);
    EXPECT_EQ(status.workers_unlisted(), kVisitors - 1000);
    EXPECT_EQ(cluster.StateOf("spot-499"), "unknown");
    EXPECT_EQ(cluster.StateOf("spot-500"), "left");
    EXPECT_EQ(cluster.controller().Members().workers.at("left"), kVisitors);
    const wire::JobStatus view = cluster.controller().View();
    EXPECT_EQ(view.worker_counts().total(), kVisitors + 2);
    EXPECT_EQ(view.worker_counts().left(), kVisitors);
    const RunSummary summary = cluster.controller().Summary();
    EXPECT_EQ(summary.totals.samples(), 10 * kVisitors);
    ASSERT_EQ(summary.worker_list.back().name, "(earlier workers)");
    EXPECT_EQ(summary.worker_list.back().totals.samples(), 10 * (kVisitors - 1000));
  };
  check(cluster_);
  const state::Scheduler saved = cluster_.Save();
  EXPECT_EQ(saved.members().workers_size(), 2 + 1000);
  EXPECT_EQ(saved.progress().workers_size(), 2 + 1000);
  EXPECT_EQ(saved.worker_metrics_size(), 2 + 1000);
  FakeCluster after;
  ASSERT_TRUE(after.TakeOver(cluster_, saved).ok());
  check(after);
  EXPECT_EQ(after.AddWorker("new").id, kVisitors + 3) << "no number is given twice";
}

TEST_F(ControllerWorkers, StatusFitsIntoAMessageHoweverManyWorkersLive) {
  constexpr uint32_t kWorkers = 9000;
  for (uint32_t i = 0; i < kWorkers; ++i) {
    wire::RegisterWorkerRequest request = FakeCluster::WorkerRequest(absl::StrCat(i, std::string(60, 'n')));
    request.set_host(std::string(250, 'h'));
    ASSERT_TRUE(cluster_.controller().RegisterWorker(request).ok());
  }
  const wire::GetStatusReply status = cluster_.controller().GetStatus();
  EXPECT_LT(status.ByteSizeLong(), 4u << 20);
  EXPECT_GT(status.members_size(), 1000);
  EXPECT_EQ(static_cast<uint32_t>(status.members_size()) + status.workers_unlisted(), kWorkers);
}

TEST_F(ControllerWorkers, EvaluationOfManyClassesIsKeptWithoutThem) {
  Begin(/*instance=*/11);
  const uint64_t range = cluster_.Range("w-1");
  ASSERT_TRUE(cluster_.Next("w-1", range)->has_evaluate());
  wire::EvaluationReport report;
  report.set_job(FakeCluster::kJob);
  report.set_worker(first_.worker());
  report.set_incarnation(first_.incarnation());
  report.set_epoch(1);
  report.set_samples(10);
  report.set_f1_macro(0.5);
  for (int i = 0; i < 60'000; ++i) report.add_classes()->set_name(absl::StrCat("class number ", i));
  ASSERT_TRUE(cluster_.controller().ReportEvaluation(report).ok());
  const wire::GetStatusReply status = cluster_.controller().GetStatus();
  EXPECT_EQ(status.evaluation().classes_size(), 0);
  EXPECT_EQ(status.evaluation().f1_macro(), 0.5);
}

}  // namespace
}  // namespace slackline::scheduler::controller_workers_test
