// A restarted scheduler continues where the one before had last saved.
#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "tests/scheduler/fake_cluster.h"

namespace slackline::scheduler::controller_state_test {
namespace {

using testing::HasSubstr;

// Ranges are whole epochs of 100 samples; nothing is evaluated but at the end.
job::Job FourEpochs() {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_training()->set_epochs(4);
  job.mutable_training()->set_evaluate_every_epochs(0);
  return job;
}

class ControllerState : public testing::Test {
 protected:
  ControllerState() : before_(FourEpochs()), after_(FourEpochs()) {
    before_.Start();
    for (const char* server : {"ps-1", "ps-2"}) before_.MakeDurable(server);
    before_.Pass(absl::Milliseconds(100));
  }

  // The scheduler dies after this was saved, and is away for a while.
  void TakeOver(const state::Scheduler& saved, absl::Duration away = absl::Seconds(3)) {
    const absl::Status restored = after_.TakeOver(before_, saved, away);
    ASSERT_TRUE(restored.ok()) << restored;
    after_.Answer();
  }

  FakeCluster before_, after_;
};

TEST_F(ControllerState, TrainingGoesOnWithTheSameMembersAndRanges) {
  const uint64_t first = before_.Range("w-1"), second = before_.Range("w-2");
  before_.progress("w-1").set_samples(40);
  before_.progress("w-1").set_steps(4);
  before_.Pass(absl::Seconds(2));
  TakeOver(before_.Save());
  EXPECT_EQ(after_.controller().state(), wire::JOB_TRAINING);
  EXPECT_EQ(after_.StateOf("w-1"), "live");
  EXPECT_EQ(after_.StateOf("ps-2"), "live");
  EXPECT_TRUE(after_.Beat("w-1").ok());
  EXPECT_TRUE(after_.Beat("ps-1").ok());
  EXPECT_GE(after_.controller().Summary().time_s, 5) << "the time that it was away counts";
  EXPECT_EQ(after_.controller().Summary().totals.samples(), 40u);
  EXPECT_EQ(after_.Range("w-1"), first) << "it has not finished it";
  const uint64_t third = after_.Range("w-1", first), fourth = after_.Range("w-2", second);
  EXPECT_TRUE(after_.Next("w-1", third)->has_standby());
  EXPECT_TRUE(after_.Next("w-2", fourth)->evaluate().final());
  ASSERT_TRUE(after_.Evaluated("w-2", 4, true).ok());
  EXPECT_EQ(after_.controller().state(), wire::JOB_DONE);
  EXPECT_EQ(after_.controller().Summary().samples_given_twice, 0u);
}

TEST_F(ControllerState, ServersGetTheSameShardsAndANewerSet) {
  const uint64_t epoch = before_.Save().members().epoch();
  ASSERT_TRUE(after_.TakeOver(before_, before_.Save()).ok());
  const FakeServers::Told& told = after_.servers().told()[ServerId(2)];
  ASSERT_TRUE(told.install && told.members);
  EXPECT_EQ(told.install->generation(), 1u) << "nothing has moved";
  EXPECT_EQ(told.install->restore_lineage(), 0u);
  EXPECT_GT(told.members->epoch(), epoch);
  EXPECT_EQ(told.members->members_size(), 2);
}

TEST_F(ControllerState, RangeThatWasGivenAfterItHadSavedIsTrainedAgain) {
  const state::Scheduler saved = before_.Save();
  const uint64_t unknown = before_.Range("w-1");
  TakeOver(saved);
  const uint64_t next = after_.Range("w-1", unknown);
  EXPECT_NE(next, unknown);
  EXPECT_EQ(after_.controller().GetStatus().samples_done(), 0u) << "what it did is not known to be done";
  EXPECT_FALSE(after_.Next("w-1", next + 1).ok()) << "no such range was ever given";
}

TEST_F(ControllerState, RangeOfTwoLivesAgoIsNobodysEither) {
  const state::Scheduler saved = before_.Save();
  const uint64_t unknown = before_.Range("w-1");
  TakeOver(saved);
  FakeCluster third(FourEpochs());
  ASSERT_TRUE(third.TakeOver(after_, after_.Save()).ok());
  third.Answer();
  EXPECT_TRUE(third.Next("w-1", unknown)->has_range());
  EXPECT_EQ(third.controller().GetStatus().samples_done(), 0u);
}

TEST_F(ControllerState, WorkerThatJoinedAfterItHadSavedJoinsAgainAsAnother) {
  const state::Scheduler saved = before_.Save();
  const FakeCluster::Member joined = before_.AddWorker("w-3");
  TakeOver(saved);
  EXPECT_EQ(after_.Beat("w-3").status().code(), absl::StatusCode::kFailedPrecondition);
  const FakeCluster::Member again = after_.AddWorker("w-3");
  EXPECT_GT(again.incarnation, joined.incarnation) << "a number is given once";
  after_.Pass(absl::Milliseconds(200));
  EXPECT_EQ(after_.StateOf("w-3"), "live");
}

TEST_F(ControllerState, NumberThatWasGivenAfterItHadSavedMayBeAnothersNow) {
  const state::Scheduler saved = before_.Save();
  before_.AddWorker("w-3");
  TakeOver(saved);
  const FakeCluster::Member other = after_.AddWorker("w-4");  // gets the number that w-3 had
  after_.Rejoin("w-3");
  after_.Pass(absl::Milliseconds(200));
  EXPECT_NE(after_.member("w-3").id, other.id);
  EXPECT_EQ(after_.StateOf("w-3"), "live");
  EXPECT_EQ(after_.StateOf("w-4"), "live");
}

TEST_F(ControllerState, WhatADeadWorkerHeldGoesToOthersOnceItIsFenced) {
  before_.Range("w-1");
  before_.Silence("ps-2");  // does not acknowledge the set without it
  before_.Silence("w-1");
  before_.Pass(absl::Milliseconds(1500));
  wire::ReportExitRequest exit;
  exit.set_job(FakeCluster::kJob);
  exit.set_role(wire::MEMBER_ROLE_WORKER);
  exit.set_name("w-1");
  exit.set_reason("killed");
  ASSERT_TRUE(before_.controller().ReportExit(exit).ok());
  before_.Answer();
  EXPECT_FALSE(before_.HasEvent("samples that worker w-1 held go to others"));
  ASSERT_TRUE(after_.TakeOver(before_, before_.Save()).ok());
  after_.member("ps-2").beats = true;
  EXPECT_FALSE(after_.HasEvent("samples that worker w-1 held go to others"));
  after_.Answer();
  EXPECT_TRUE(after_.HasEvent("the 100 samples that worker w-1 held go to others"));
}

TEST_F(ControllerState, ServerThatWasAwayIsStillWaitedFor) {
  wire::ReportExitRequest exit;
  exit.set_job(FakeCluster::kJob);
  exit.set_role(wire::MEMBER_ROLE_SERVER);
  exit.set_name("ps-2");
  exit.set_reason("killed");
  ASSERT_TRUE(before_.controller().ReportExit(exit).ok());
  TakeOver(before_.Save());
  EXPECT_EQ(after_.controller().state(), wire::JOB_TRAINING);
  after_.AddServer("ps-2");
  const FakeServers::Told& told = after_.servers().told()[ServerId(2)];
  EXPECT_GT(told.install->restore_lineage(), 2u);
  EXPECT_EQ(told.install->restore_lineage(), told.install->generation());
  after_.Answer();
  EXPECT_TRUE(after_.HasEvent("server ps-2 goes on from its snapshots"));
}

TEST_F(ControllerState, ShardsThatWereOnDiskFirstAfterItHadSavedAreWaitedForToo) {
  state::Scheduler saved = before_.Save();
  for (state::Server& server : *saved.mutable_members()->mutable_servers()) server.set_durable(false);
  TakeOver(saved);
  after_.Silence("ps-2");
  after_.Pass(absl::Seconds(2));
  EXPECT_EQ(after_.controller().state(), wire::JOB_TRAINING);
}

TEST_F(ControllerState, ServerThatDiedMeanwhileIsFoundOut) {
  TakeOver(before_.Save());
  after_.Silence("ps-2");
  after_.Pass(absl::Seconds(2));
  EXPECT_TRUE(after_.HasEvent("server ps-2 (ps-2:1) is dead"));
  EXPECT_EQ(after_.controller().state(), wire::JOB_TRAINING) << "it may come back";
}

TEST_F(ControllerState, NewestMapIsNewerThanAnyBefore) {
  const state::Scheduler saved = before_.Save();
  before_.Advance(absl::Milliseconds(301));
  before_.AddServer("ps-2");
  const uint64_t generation = before_.Beat("w-1")->generation();
  TakeOver(saved);
  EXPECT_GT(after_.Beat("w-1")->generation(), generation);
}

TEST_F(ControllerState, StateOfAnotherJobIsRefused) {
  state::Scheduler saved = before_.Save();
  saved.set_fingerprint(6);
  const absl::Status refused = after_.TakeOver(before_, saved);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("with the job file and the --set options that the run began with"));
  saved.set_format(2);
  EXPECT_EQ(after_.TakeOver(before_, saved).code(), absl::StatusCode::kDataLoss);
}

TEST(ControllerStateEarly, JobThatHadNotBegunBeginsWhenAllAreThere) {
  FakeCluster before(FourEpochs()), after(FourEpochs());
  before.AddServer("ps-1");
  before.AddWorker("w-1");
  ASSERT_TRUE(after.TakeOver(before, before.Save()).ok());
  after.AddServer("ps-2");
  after.AddWorker("w-2");
  after.Pass(absl::Milliseconds(200));
  EXPECT_EQ(after.controller().state(), wire::JOB_TRAINING);
}

TEST_F(ControllerState, StateThatContradictsItselfIsRefused) {
  before_.Range("w-1");
  const state::Scheduler good = before_.Save();
  using Change = void (*)(state::Scheduler & state);
  const std::pair<Change, const char*> cases[] = {
      {[](state::Scheduler& state) { state.clear_first_worker(); }, "no model"},
      {[](state::Scheduler& state) { state.set_job_state(wire::JOB_STATE_UNSPECIFIED); }, "job state 0"},
      {[](state::Scheduler& state) { state.mutable_members()->mutable_servers()->RemoveLast(); }, "1 of 2 servers"},
      {[](state::Scheduler& state) { state.mutable_members()->set_last_incarnation(0); }, "incarnation"},
      {[](state::Scheduler& state) { state.mutable_members()->mutable_workers(1)->set_worker(1); }, "two workers 1"},
      {[](state::Scheduler& state) { state.mutable_members()->mutable_workers(1)->set_worker(7); }, "numbered from 1"},
      {[](state::Scheduler& state) { state.mutable_members()->set_last_worker(3); }, "numbered from 1 to 3"},
      {[](state::Scheduler& state) { state.mutable_members()->set_left_forgotten(1); }, "1 forgotten"},
      {[](state::Scheduler& state) { state.set_generation(UINT64_MAX); }, "allowed is at most"},
      {[](state::Scheduler& state) { state.set_elapsed_s(std::nan("")); }, "training for nan s"},
      {[](state::Scheduler& state) { state.mutable_tasks()->mutable_ranges()->set_next_epoch(5); }, "5 begun of 4"},
      {[](state::Scheduler& state) { state.mutable_tasks()->mutable_ranges()->set_samples_done(7); }, "7 samples done"},
      {[](state::Scheduler& state) { state.mutable_tasks()->mutable_ranges()->clear_leased(); }, "are not all free"},
      {[](state::Scheduler& state) {
         state.mutable_tasks()->mutable_ranges()->mutable_leased(0)->mutable_span()->set_end(500);
       },
       "to be trained once"},
      {[](state::Scheduler& state) { state.mutable_tasks()->mutable_due()->set_epoch(5); }, "an evaluation of epoch 5"},
      {[](state::Scheduler& state) { state.set_optimizer_awaited(true); }, "no worker has said what the optimizer is"},
  };
  for (const auto& [change, words] : cases) {
    state::Scheduler state = good;
    change(state);
    FakeCluster after(FourEpochs());
    const absl::Status status = after.TakeOver(before_, state);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << words;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }
}

TEST(ControllerStateOfLinks, ShardsStayWhereTheyWerePlacedByLinks) {
  FakeCluster before, after;
  before.AddServer("ps-1", 25'000);
  before.AddServer("ps-2", 75'000);
  for (const char* const worker : {"w-1", "w-2"}) before.AddWorker(worker);
  before.Answer();
  ASSERT_EQ(before.controller().state(), wire::JOB_TRAINING);
  const absl::Status restored = after.TakeOver(before, before.Save(), absl::Seconds(3));
  ASSERT_TRUE(restored.ok()) << restored;
  after.Answer();
  after.Pass(absl::Seconds(5));
  wire::GetShardMapRequest request;
  request.set_job(FakeCluster::kJob);
  const auto map = after.controller().GetShardMap(request);
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(std::count_if(map->shards().begin(), map->shards().end(), [](const auto& s) { return s.server() == 1; }),
            4);
  EXPECT_EQ(after.controller().GetStatus().moving(), "");
}

}  // namespace
}  // namespace slackline::scheduler::controller_state_test
