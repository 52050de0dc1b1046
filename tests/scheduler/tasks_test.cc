#include "scheduler/work/tasks.h"

#include <variant>

#include <gtest/gtest.h>

namespace slackline::scheduler::tasks_test {
namespace {

const Holder kFirstHolder = {WorkerId(1), Incarnation(1)};
const Holder kSecondHolder = {WorkerId(2), Incarnation(2)};
const Holder kThird = {WorkerId(3), Incarnation(3)};

// Each epoch is one range, so that a test needs few steps.
Tasks::Config Config(uint32_t epochs, uint32_t evaluate_every = 1) {
  Tasks::Config config;
  config.ranges.samples_per_epoch = 100;
  config.ranges.epochs = epochs;
  config.ranges.batch_size = 100;
  config.evaluate_every_epochs = evaluate_every;
  return config;
}

Work Ask(Tasks& tasks, const Holder& holder, bool live = true) { return tasks.Next({.holder = holder, .live = live}); }

// Takes a range and finishes it.
void Train(Tasks& tasks, const Holder& holder) {
  const Work work = Ask(tasks, holder);
  ASSERT_TRUE(std::holds_alternative<DataRange>(work)) << work.index();
  ASSERT_TRUE(tasks.FinishRange(holder, std::get<DataRange>(work).id).ok());
}

template <typename Kind>
bool Is(const Work& work) {
  return std::holds_alternative<Kind>(work);
}

EvaluationWork Evaluation(const Work& work) {
  EXPECT_TRUE(Is<EvaluationWork>(work)) << work.index();
  return Is<EvaluationWork>(work) ? std::get<EvaluationWork>(work) : EvaluationWork{};
}

TEST(Tasks, OneWorkerEvaluatesACompletedEpoch) {
  Tasks tasks(Config(3));
  Train(tasks, kFirstHolder);
  EXPECT_EQ(Evaluation(Ask(tasks, kSecondHolder)), (EvaluationWork{1, false}));
  EXPECT_TRUE(Is<DataRange>(Ask(tasks, kFirstHolder)));
}

TEST(Tasks, EvaluationsKeepTheirInterval) {
  Tasks tasks(Config(5, 2));
  Train(tasks, kFirstHolder);
  Train(tasks, kFirstHolder);
  EXPECT_EQ(Evaluation(Ask(tasks, kFirstHolder)), (EvaluationWork{2, false}));
}

TEST(Tasks, IntervalOfZeroLeavesOnlyTheFinalEvaluation) {
  Tasks tasks(Config(3, 0));
  for (int epoch = 0; epoch < 3; ++epoch) Train(tasks, kFirstHolder);
  EXPECT_EQ(Evaluation(Ask(tasks, kFirstHolder)), (EvaluationWork{3, true}));
}

TEST(Tasks, EpochIsEvaluatedWhenItsSamplesAreTrainedWhoeverHasItsLastRange) {
  Tasks::Config config = Config(3);
  config.ranges.batch_size = 10;
  Tasks tasks(config);
  ASSERT_TRUE(Is<DataRange>(Ask(tasks, kFirstHolder)));
  ASSERT_TRUE(Is<DataRange>(Ask(tasks, kSecondHolder)));
  tasks.Reached({.samples_trained = 99, .samples_applied = 99});
  EXPECT_FALSE(tasks.EvaluationDue());
  tasks.Reached({.samples_trained = 100, .samples_applied = 90});
  EXPECT_EQ(Evaluation(Ask(tasks, kThird)), (EvaluationWork{.epoch = 1}));
  EXPECT_EQ(tasks.ranges().epochs_done(), 0u);
  tasks.Reached({.samples_trained = 150, .samples_applied = 100});
  EXPECT_FALSE(tasks.EvaluationDue());
}

Tasks::Config Grid(uint64_t every) {
  Tasks::Config config = Config(3);
  config.ranges.batch_size = 10;
  config.evaluate_every_samples = every;
  return config;
}

TEST(Tasks, GridOfSamplesCountsThoseThatAreApplied) {
  Tasks tasks(Grid(30));
  tasks.Reached({.samples_trained = 35, .samples_applied = 29});
  EXPECT_FALSE(tasks.EvaluationDue());
  tasks.Reached({.samples_trained = 41, .samples_applied = 31});
  EXPECT_EQ(Evaluation(Ask(tasks, kFirstHolder)), (EvaluationWork{.epoch = 0, .at_samples = 30}));
  // Of several that nobody has taken, the latest is.
  tasks.Reached({.samples_trained = 130, .samples_applied = 125});
  EXPECT_EQ(Evaluation(Ask(tasks, kSecondHolder)), (EvaluationWork{.epoch = 1, .at_samples = 120}));
  tasks.Gone(kSecondHolder);
  tasks.Gone(kFirstHolder);
  EXPECT_EQ(Evaluation(Ask(tasks, kThird)), (EvaluationWork{.epoch = 1, .at_samples = 120}));
}

TEST(Tasks, TwoEvaluationsOfOneEpochAreNoRepetition) {
  Tasks tasks(Grid(30));
  for (const uint64_t at : {30, 60}) {
    tasks.Reached({.samples_trained = at, .samples_applied = at});
    const EvaluationWork work = Evaluation(Ask(tasks, kFirstHolder));
    EXPECT_TRUE(*tasks.FinishEvaluation(kFirstHolder, work));
    EXPECT_FALSE(*tasks.FinishEvaluation(kFirstHolder, work));
  }
}

TEST(Tasks, RangesShrinkTowardsTheNextPointOfTheGrid) {
  Tasks tasks(Grid(40));
  const auto size = [&](const Holder& holder) { return std::get<DataRange>(Ask(tasks, holder)).size(); };
  EXPECT_EQ(size(kFirstHolder), 20u);
  EXPECT_EQ(size(kSecondHolder), 10u) << "20 are under way";
  // All are trained, but not said to be done: the next point is 80.
  tasks.Reached({.samples_trained = 30, .samples_applied = 40});
  ASSERT_TRUE(Is<EvaluationWork>(Ask(tasks, kThird)));
  EXPECT_EQ(size({WorkerId(4), Incarnation(4)}), 10u);
}

TEST(Tasks, WorkersAskAfterEachBatchUntilItIsKnownThatTheEpochIsTrained) {
  Tasks::Config config = Config(3);
  config.ranges.batch_size = 10;
  Tasks tasks(config);
  const auto lease = [&](const Holder& holder) { return std::get<DataRange>(Ask(tasks, holder)); };
  DataRange range = lease(kFirstHolder);
  while (range.end < 100) {
    ASSERT_TRUE(tasks.FinishRange(kFirstHolder, range.id).ok());
    range = lease(kFirstHolder);
  }
  const DataRange next = lease(kSecondHolder);
  EXPECT_EQ(next.epoch, 1u);
  EXPECT_EQ(next.size(), 10u) << "the first epoch may have been trained while this is";
  ASSERT_TRUE(tasks.FinishRange(kFirstHolder, range.id).ok());
  ASSERT_TRUE(Is<EvaluationWork>(Ask(tasks, kFirstHolder)));
  EXPECT_GT(lease(kThird).size(), 10u);
}

TEST(Tasks, GridGoesOnWhereItWasSaved) {
  Tasks tasks(Grid(30));
  tasks.Reached({.samples_trained = 31, .samples_applied = 31});
  const EvaluationWork first = Evaluation(Ask(tasks, kFirstHolder));
  state::Tasks saved;
  tasks.Save(saved);
  Tasks again(Grid(30));
  again.Restore(saved);
  again.Reached({.samples_trained = 59, .samples_applied = 59});
  EXPECT_FALSE(again.EvaluationDue());
  EXPECT_EQ(Evaluation(Ask(again, kFirstHolder)), first);
  again.Reached({.samples_trained = 60, .samples_applied = 60});
  EXPECT_TRUE(again.EvaluationDue());
}

TEST(Tasks, AskingAgainGivesTheSameEvaluation) {
  Tasks tasks(Config(3));
  Train(tasks, kFirstHolder);
  EXPECT_EQ(Evaluation(Ask(tasks, kFirstHolder)), Evaluation(Ask(tasks, kFirstHolder)));
}

TEST(Tasks, EvaluationOfADeadWorkerGoesToAnother) {
  Tasks tasks(Config(3));
  Train(tasks, kFirstHolder);
  ASSERT_TRUE(Is<EvaluationWork>(Ask(tasks, kFirstHolder)));
  EXPECT_TRUE(tasks.Busy(kFirstHolder));
  tasks.Gone(kFirstHolder);
  EXPECT_FALSE(tasks.Busy(kFirstHolder));
  EXPECT_EQ(Evaluation(Ask(tasks, kSecondHolder)), (EvaluationWork{1, false}));
}

TEST(Tasks, LaterEpochReplacesAnEvaluationThatNobodyTook) {
  Tasks tasks(Config(4));
  const Work first = Ask(tasks, kFirstHolder);
  const Work second = Ask(tasks, kSecondHolder);
  ASSERT_TRUE(tasks.FinishRange(kFirstHolder, std::get<DataRange>(first).id).ok());
  ASSERT_TRUE(tasks.FinishRange(kSecondHolder, std::get<DataRange>(second).id).ok());
  EXPECT_EQ(Evaluation(Ask(tasks, kFirstHolder)), (EvaluationWork{2, false}));
  EXPECT_TRUE(Is<DataRange>(Ask(tasks, kSecondHolder)));
}

TEST(Tasks, WorkerWithoutRangeStandsByUntilADeathFreesOne) {
  Tasks tasks(Config(1));
  ASSERT_TRUE(Is<DataRange>(Ask(tasks, kFirstHolder)));
  EXPECT_TRUE(Is<StandbyWork>(Ask(tasks, kSecondHolder)));
  EXPECT_TRUE(Is<StandbyWork>(Ask(tasks, kSecondHolder, /*live=*/false)));
  tasks.Gone(kFirstHolder);
  // Not before it is fenced: its pushes may still arrive.
  EXPECT_TRUE(Is<StandbyWork>(Ask(tasks, kSecondHolder, /*live=*/false)));
  EXPECT_EQ(tasks.Fenced(kFirstHolder), 100u);
  EXPECT_TRUE(Is<RegisterAgainWork>(Ask(tasks, kSecondHolder, /*live=*/false)));
  EXPECT_TRUE(Is<DataRange>(Ask(tasks, kSecondHolder)));
}

TEST(Tasks, FinalEvaluationWaitsForTheLastRangeAndGoesToOneWorker) {
  Tasks tasks(Config(1));
  const Work range = Ask(tasks, kFirstHolder);
  EXPECT_TRUE(Is<StandbyWork>(Ask(tasks, kSecondHolder)));
  ASSERT_TRUE(tasks.FinishRange(kFirstHolder, std::get<DataRange>(range).id).ok());
  EXPECT_EQ(Evaluation(Ask(tasks, kSecondHolder, /*live=*/false)), (EvaluationWork{1, true}));
  EXPECT_TRUE(Is<StandbyWork>(Ask(tasks, kFirstHolder)));
}

TEST(Tasks, EvaluationsWaitForASwiftWorker) {
  Tasks tasks(Config(2));
  const auto ask = [&tasks](const Holder& holder, bool swift) {
    return tasks.Next({.holder = holder, .live = true, .swift = swift});
  };
  EXPECT_FALSE(tasks.EvaluationDue());
  Train(tasks, kFirstHolder);
  EXPECT_TRUE(tasks.EvaluationDue());
  const Work range = ask(kSecondHolder, /*swift=*/false);
  ASSERT_TRUE(Is<DataRange>(range));
  EXPECT_EQ(Evaluation(ask(kFirstHolder, /*swift=*/true)), (EvaluationWork{1, false}));
  EXPECT_FALSE(tasks.EvaluationDue());
  EXPECT_TRUE(*tasks.FinishEvaluation(kFirstHolder, {1, false}));
  ASSERT_TRUE(tasks.FinishRange(kSecondHolder, std::get<DataRange>(range).id).ok());
  EXPECT_TRUE(tasks.EvaluationDue());
  EXPECT_TRUE(Is<StandbyWork>(ask(kSecondHolder, /*swift=*/false)));
  EXPECT_EQ(Evaluation(ask(kFirstHolder, /*swift=*/true)), (EvaluationWork{2, true}));
}

TEST(Tasks, FinalEvaluationWaitsForAnEvaluationInProgress) {
  Tasks tasks(Config(2));
  Train(tasks, kFirstHolder);
  ASSERT_TRUE(Is<EvaluationWork>(Ask(tasks, kFirstHolder)));
  Train(tasks, kSecondHolder);
  EXPECT_TRUE(Is<StandbyWork>(Ask(tasks, kSecondHolder)));
  EXPECT_TRUE(*tasks.FinishEvaluation(kFirstHolder, {1, false}));
  EXPECT_EQ(Evaluation(Ask(tasks, kSecondHolder)), (EvaluationWork{2, true}));
}

TEST(Tasks, FinalEvaluationOfADeadWorkerGoesToAnotherAndThenAllLeave) {
  Tasks tasks(Config(1));
  Train(tasks, kFirstHolder);
  ASSERT_TRUE(Is<EvaluationWork>(Ask(tasks, kFirstHolder)));
  EXPECT_TRUE(Is<StandbyWork>(Ask(tasks, kThird)));
  tasks.Gone(kFirstHolder);
  EXPECT_EQ(Evaluation(Ask(tasks, kThird)), (EvaluationWork{1, true}));
  EXPECT_FALSE(tasks.Complete());
  EXPECT_TRUE(*tasks.FinishEvaluation(kThird, {1, true}));
  EXPECT_TRUE(tasks.Complete());
  EXPECT_TRUE(Is<LeaveWork>(Ask(tasks, kThird)));
  EXPECT_TRUE(Is<LeaveWork>(Ask(tasks, kSecondHolder, /*live=*/false)));
}

TEST(Tasks, ResultOfAnotherWorkersEvaluationIsRefused) {
  Tasks tasks(Config(1));
  Train(tasks, kFirstHolder);
  ASSERT_TRUE(Is<EvaluationWork>(Ask(tasks, kFirstHolder)));
  EXPECT_EQ(tasks.FinishEvaluation(kSecondHolder, {1, true}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(tasks.FinishEvaluation(kFirstHolder, {1, false}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(tasks.Complete());
}

TEST(Tasks, RepeatedResultChangesNothing) {
  Tasks tasks(Config(2));
  Train(tasks, kFirstHolder);
  ASSERT_TRUE(Is<EvaluationWork>(Ask(tasks, kFirstHolder)));
  EXPECT_TRUE(*tasks.FinishEvaluation(kFirstHolder, {1, false}));
  EXPECT_FALSE(*tasks.FinishEvaluation(kFirstHolder, {1, false}));
}

TEST(Tasks, AnEarlyEndWaitsForWhatIsUnderWay) {
  Tasks tasks(Config(9));
  Train(tasks, kFirstHolder);
  const Work evaluation = Ask(tasks, kSecondHolder);
  const Work range = Ask(tasks, kFirstHolder);
  ASSERT_TRUE(Is<DataRange>(range));
  ASSERT_TRUE(tasks.FinishEvaluation(kSecondHolder, Evaluation(evaluation)).ok());
  tasks.EndEarly();
  EXPECT_TRUE(Is<StandbyWork>(Ask(tasks, kSecondHolder))) << "a range is still under way";
  EXPECT_TRUE(Is<StandbyWork>(Ask(tasks, kThird, /*live=*/false))) << "nobody is called for";
  state::Tasks saved;
  tasks.Save(saved);
  Tasks restored(Config(9));
  restored.Restore(saved);
  EXPECT_TRUE(Is<StandbyWork>(Ask(restored, kSecondHolder))) << "the next scheduler knows";
  ASSERT_TRUE(tasks.FinishRange(kFirstHolder, std::get<DataRange>(range).id).ok());
  const EvaluationWork final = Evaluation(Ask(tasks, kFirstHolder));
  EXPECT_EQ(final, (EvaluationWork{2, true})) << "the epochs that were done, and none in between";
  ASSERT_TRUE(tasks.FinishEvaluation(kFirstHolder, final).ok());
  EXPECT_TRUE(tasks.Complete());
  EXPECT_TRUE(Is<LeaveWork>(Ask(tasks, kSecondHolder)));
}

TEST(Tasks, AnEarlyEndDoesNotWaitForTheDead) {
  Tasks tasks(Config(9, 0));
  Train(tasks, kFirstHolder);
  ASSERT_TRUE(Is<DataRange>(Ask(tasks, kFirstHolder)));
  tasks.EndEarly();
  tasks.Gone(kFirstHolder);
  EXPECT_TRUE(Is<StandbyWork>(Ask(tasks, kSecondHolder))) << "its pushes may still arrive";
  tasks.Fenced(kFirstHolder);
  EXPECT_EQ(Evaluation(Ask(tasks, kSecondHolder)), (EvaluationWork{1, true}));
}

TEST(Tasks, ARunThatGoesOnFromAnEarlyEndTrainsOn) {
  Tasks tasks(Config(3));
  Train(tasks, kFirstHolder);
  tasks.EndEarly();
  const EvaluationWork final = Evaluation(Ask(tasks, kFirstHolder));
  ASSERT_TRUE(tasks.FinishEvaluation(kFirstHolder, final).ok());
  state::Tasks saved;
  tasks.Save(saved);
  Tasks next(Config(3));
  next.GoOnFrom(saved);
  EXPECT_FALSE(next.Complete());
  EXPECT_TRUE(Is<DataRange>(Ask(next, kFirstHolder)));
}

}  // namespace
}  // namespace slackline::scheduler::tasks_test
