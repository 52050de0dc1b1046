// The worker embedded in another program, with a fake scheduler and a fake client.
#include "worker/embedded/embedded_worker.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "images/dataset/dataset.h"
#include "tests/worker/scripted.h"

namespace slackline::worker::embedded_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class EmbeddedTest : public testing::Test {
 protected:
  EmbeddedTest() { Make({absl::MakeSpan(parameters_)}, {absl::MakeSpan(push_)}); }

  // With as many steps in flight as there are parts.
  void Make(std::vector<absl::Span<float>> parameters, std::vector<absl::Span<float>> push) {
    worker_.reset();
    EmbeddedWorker::Options options;
    options.window = static_cast<uint32_t>(push.size());
    options.tensors = {{.name = "weight", .shape = {2}}};
    options.train_samples = 10;
    options.stream = stream_;
    options.predicted = predicted_;
    options.batch_size = 4;
    worker_ = std::make_unique<EmbeddedWorker>(
        options, EmbeddedWorker::Parts{.time = time_,
                                       .link = link_,
                                       .metrics = trainer_metrics_,
                                       .parameters = std::move(parameters),
                                       .push = std::move(push),
                                       .connect = [this](const ClientOptions& client, const ShardMap&) {
                                         return absl::StatusOr<std::unique_ptr<Client>>(
                                             std::make_unique<ScriptedClient>(client, wire_));
                                       }});
  }

  static RangeWork Range(uint64_t range, uint64_t begin, uint64_t end) {
    return {.range = RangeId(range), .epoch = 0, .begin = begin, .end = end};
  }
  // What Next() says, as a range; fails the test where it is something else.
  EmbeddedRange NextRange(bool done = false) {
    const absl::StatusOr<EmbeddedTask> task = worker_->Next(done);
    EXPECT_TRUE(task.ok()) << task.status();
    const EmbeddedRange* range = task.ok() ? std::get_if<EmbeddedRange>(&*task) : nullptr;
    EXPECT_NE(range, nullptr);
    return range != nullptr ? *range : EmbeddedRange();
  }
  absl::StatusOr<EmbeddedStep> Step(uint64_t samples) {
    return worker_->Step({.samples = samples, .loss = 0.5, .correct = 1, .compute = {}, .data_wait = {}});
  }

  // Makes the worker one of a stream of three parts, which gets `leases`.
  void MakeForStream(std::vector<PartLease> leases) {
    stream_ = StreamFacts{.parts = 3};
    link_.part_leases = std::move(leases);
    Make({absl::MakeSpan(parameters_)}, {absl::MakeSpan(push_)});
  }
  absl::StatusOr<EmbeddedStep> StepTo(std::vector<PartPosition> parts) {
    return worker_->Step({.samples = 4, .parts = std::move(parts), .compute = {}, .data_wait = {}});
  }

  std::optional<StreamFacts> stream_;
  bool predicted_ = false;
  ManualTime time_;
  ScriptedLink link_;
  Wire wire_;
  slackline::Metrics metrics_;
  TrainerMetrics trainer_metrics_{metrics_};
  std::vector<float> parameters_ = {5, 6};
  std::vector<float> push_ = {3, 4};
  std::unique_ptr<EmbeddedWorker> worker_;
};

TEST_F(EmbeddedTest, SamplesThatAreLeftOutCountAsDoneAndNothingIsPushed) {
  link_.work = {Range(7, 0, 6), Range(8, 6, 10)};
  NextRange();
  worker_->Skip(2);
  ASSERT_TRUE(Step(3).ok());
  EXPECT_THAT(worker_->Next(/*range_done=*/true).status().message(), HasSubstr("5 of its 6 samples"));
  worker_->Skip(1);
  EXPECT_EQ(NextRange(/*done=*/true).work.range, RangeId(8));
  ASSERT_EQ(wire_.pushes.size(), 1);
  EXPECT_EQ(wire_.pushes[0].range_samples_done, 5);
}

TEST_F(EmbeddedTest, RangeOfAStreamHasNoSamplesOfItsOwn) {
  MakeForStream({});
  link_.work = {Range(7, 0, 6)};
  const EmbeddedRange range = NextRange();
  EXPECT_EQ(range.work.end, 6);
  EXPECT_THAT(range.samples, testing::IsEmpty());
}

TEST_F(EmbeddedTest, PushNamesPositionsAndTheSchedulerHearsOfAnsweredOnes) {
  MakeForStream({{.lease = 3, .part = 1, .records = 5}});
  link_.work = {Range(7, 0, 6), Range(8, 6, 10)};
  NextRange();
  ASSERT_EQ(worker_->LeaseParts(1, {})->size(), 1);
  ASSERT_TRUE(StepTo({{.lease = 3, .records = 9}}).ok());
  EXPECT_THAT(wire_.pushes[0].parts, ElementsAre(PartPosition{.lease = 3, .records = 9}));
  wire_.step_errors = {absl::InternalError("a server is gone")};
  EXPECT_FALSE(StepTo({{.lease = 3, .records = 13}}).ok());
  worker_->Leave("had enough");
  EXPECT_THAT(link_.left_with.reached, ElementsAre(PartPosition{.lease = 3, .records = 9}));
}

TEST_F(EmbeddedTest, PartThatEndedIsReportedWithTheNextLease) {
  MakeForStream({{.lease = 3}});
  link_.work = {Range(7, 0, 6)};
  NextRange();
  ASSERT_TRUE(worker_->LeaseParts(1, {}).ok());
  ASSERT_TRUE(StepTo({{.lease = 3, .records = 4}}).ok());
  link_.part_leases = {{.lease = 4}};
  ASSERT_TRUE(worker_->LeaseParts(2, {{.lease = 3, .records = 4, .ended = true}}).ok());
  EXPECT_THAT(link_.parts_wanted, ElementsAre(1, 2));
  EXPECT_THAT(link_.parts_reached, ElementsAre(PartPosition{.lease = 3, .records = 4},
                                               PartPosition{.lease = 3, .records = 4, .ended = true}));
  worker_->Leave("had enough");
  EXPECT_THAT(link_.left_with.reached, ElementsAre(PartPosition{.lease = 4}));
}

TEST_F(EmbeddedTest, WorkerThatJoinsAgainHasNoParts) {
  MakeForStream({{.lease = 3}});
  link_.work = {Range(7, 0, 6)};
  NextRange();
  ASSERT_TRUE(worker_->LeaseParts(1, {}).ok());
  wire_.step_errors = {absl::FailedPreconditionError("expelled")};
  const absl::StatusOr<EmbeddedStep> step = StepTo({{.lease = 3, .records = 4}});
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->outcome, EmbeddedStep::Outcome::kRejoined);
  EXPECT_EQ(worker_->view().lives, 2);
  worker_->Leave("had enough");
  EXPECT_THAT(link_.left_with.reached, testing::IsEmpty());
}

TEST_F(EmbeddedTest, PushNamesTheRatesOfItsStepAndTheReportHasTheFirst) {
  link_.work = {Range(7, 0, 6)};
  NextRange();
  ASSERT_TRUE(Step(2).ok());
  EXPECT_EQ(link_.progress().Take(absl::Now()).total.learning_rate, std::nullopt);
  ASSERT_TRUE(worker_->Step({.samples = 4, .learning_rates = {0.25, 0.5}, .compute = {}, .data_wait = {}}).ok());
  ASSERT_EQ(wire_.pushes.size(), 2);
  EXPECT_THAT(wire_.pushes[0].learning_rates, testing::IsEmpty());
  EXPECT_THAT(wire_.pushes[1].learning_rates, ElementsAre(0.25, 0.5));
  EXPECT_EQ(link_.progress().Take(absl::Now()).total.learning_rate, 0.25);
}

TEST_F(EmbeddedTest, SeedsPullsTrainsItsRangesAndLeaves) {
  link_.work = {Range(7, 0, 6), Range(8, 6, 10)};
  const EmbeddedRange first = NextRange();
  EXPECT_EQ(first.work.range, RangeId(7));
  EXPECT_EQ(first.work.batch_size, 4);
  const std::vector<uint32_t> order = images::EpochOrder(10, 1, 0);
  EXPECT_EQ(first.samples, std::vector<uint32_t>(order.begin(), order.begin() + 6));
  EXPECT_EQ(worker_->view().worker, 1);
  EXPECT_EQ(worker_->view().clock, Clock64(5));
  ASSERT_TRUE(Step(4).ok());
  const absl::StatusOr<EmbeddedStep> step = Step(2);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->outcome, EmbeddedStep::Outcome::kTaken);
  EXPECT_EQ(step->report.clock, Clock64(7));
  EXPECT_EQ(worker_->view().clock, Clock64(7));
  EXPECT_EQ(worker_->view().steps, 2);
  NextRange(/*done=*/true);
  ASSERT_TRUE(Step(4).ok());
  const absl::StatusOr<EmbeddedTask> end = worker_->Next(true);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(std::get<EmbeddedEnd>(*end).reason, "the job is done");
  worker_->Leave("the script is done");
  worker_->Leave("again");
  EXPECT_THAT(wire_.calls, ElementsAre("open", "seed", "pull", "close: the script is done"));
  EXPECT_EQ(link_.left, "the script is done");
  EXPECT_THAT(link_.done, ElementsAre(7, 8));
  ASSERT_EQ(wire_.pushes.size(), 3);
  EXPECT_EQ(wire_.pushes[1].range, RangeId(7));
  EXPECT_EQ(wire_.pushes[1].samples, 2);
  EXPECT_EQ(wire_.pushes[1].range_samples_done, 6);
  EXPECT_EQ(wire_.pushes[1].gradient_norm, 5);
  EXPECT_EQ(wire_.written[0], parameters_.data());
  EXPECT_EQ(link_.progress().Take(absl::Now()).total.samples, 10);
  EXPECT_EQ(worker_->view().ended, "the job is done");
}

TEST_F(EmbeddedTest, GradientsLeaveWhileTheyAreMade) {
  link_.work = {Range(7, 0, 4)};
  NextRange();
  ASSERT_TRUE(worker_->Ready(1).ok());
  ASSERT_TRUE(worker_->Ready(0).ok());
  const absl::StatusOr<EmbeddedTask> early = worker_->Next(false);
  EXPECT_THAT(early.status().message(), HasSubstr("a step is under way"));
  ASSERT_TRUE(Step(4).ok());
  EXPECT_THAT(wire_.ready, ElementsAre(1, 0));
  EXPECT_THAT(wire_.pushed, ElementsAre(ElementsAre(3, 4)));
}

TEST_F(EmbeddedTest, RangeThatIsNotTrainedIsNotDone) {
  link_.work = {Range(7, 0, 6), Range(8, 6, 10)};
  NextRange();
  ASSERT_TRUE(Step(4).ok());
  const absl::StatusOr<EmbeddedTask> early = worker_->Next(true);
  EXPECT_EQ(early.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(early.status().message(), HasSubstr("4 of its 6 samples"));
  ASSERT_TRUE(Step(2).ok());
  NextRange(true);
  EXPECT_THAT(link_.done, ElementsAre(7));
}

TEST_F(EmbeddedTest, StepThatFindsItExpelledJoinsAgain) {
  link_.work = {Range(7, 0, 8), Range(8, 0, 8)};
  NextRange();
  wire_.step_errors = {absl::FailedPreconditionError("not a member")};
  const absl::StatusOr<EmbeddedStep> lost = Step(4);
  ASSERT_TRUE(lost.ok()) << lost.status();
  EXPECT_EQ(lost->outcome, EmbeddedStep::Outcome::kRejoined);
  EXPECT_EQ(worker_->view().lives, 2);
  // A batch that was drawn before belongs to no range; nothing of the old one is reported.
  ASSERT_TRUE(Step(4).ok());
  EXPECT_EQ(wire_.pushes.back().range, RangeId());
  NextRange(/*done=*/true);
  EXPECT_THAT(link_.done, ElementsAre());
  EXPECT_THAT(wire_.calls, ElementsAre("open", "seed", "pull", "close: not a member", "open", "pull"));
}

TEST_F(EmbeddedTest, HeartbeatThatSaysExpelledCutsTheStepShort) {
  link_.work = {Range(7, 0, 8)};
  NextRange();
  wire_.during_step = [this, once = true]() mutable {
    if (std::exchange(once, false)) link_.on_end_(absl::FailedPreconditionError("dead"), "declared dead");
  };
  const absl::StatusOr<EmbeddedStep> lost = Step(4);
  ASSERT_TRUE(lost.ok()) << lost.status();
  EXPECT_EQ(lost->outcome, EmbeddedStep::Outcome::kRejoined);
  EXPECT_EQ(link_.joins, 2);
}

TEST_F(EmbeddedTest, WorkerThatIsExpelledBetweenStepsWaitsForNoServer) {
  link_.work = {Range(7, 0, 8)};
  NextRange();
  link_.on_end_(absl::FailedPreconditionError("dead"), "declared dead");
  wire_.during_step = [] { FAIL() << "the first life waits for an answer"; };
  const absl::StatusOr<EmbeddedStep> lost = Step(4);
  ASSERT_TRUE(lost.ok()) << lost.status();
  EXPECT_EQ(lost->outcome, EmbeddedStep::Outcome::kRejoined);
  EXPECT_EQ(link_.joins, 2);
}

TEST_F(EmbeddedTest, GivesUpAfterLivesWithoutAStep) {
  link_.work = {Range(7, 0, 8)};
  NextRange();
  link_.work.assign(10, absl::FailedPreconditionError("register again"));
  EXPECT_EQ(worker_->Next(false).status(), absl::FailedPreconditionError("register again"));
  EXPECT_EQ(link_.joins, 4) << "three more";
}

// Three steps in flight.
class EmbeddedWindowTest : public EmbeddedTest {
 protected:
  EmbeddedWindowTest() {
    Make({memory_[0], memory_[1], memory_[2]}, {memory_[3], memory_[4], memory_[5]});
    link_.work = {Range(7, 0, 8), Range(8, 8, 10)};
    NextRange();
  }
  // Pushes `value`, of a sample.
  absl::StatusOr<EmbeddedStep> Push(float value) {
    std::fill(worker_->push().begin(), worker_->push().end(), value);
    return Step(1);
  }

  std::vector<float> values_ = std::vector<float>(12);
  const std::vector<absl::Span<float>> memory_ = [this] {
    std::vector<absl::Span<float>> parts;
    for (size_t i = 0; i < 6; ++i) parts.push_back(absl::MakeSpan(values_).subspan(2 * i, 2));
    return parts;
  }();
};

TEST_F(EmbeddedWindowTest, StepsWaitForTheOldestOnceAsManyAreInFlight) {
  std::vector<uint64_t> clocks, parts;
  for (int i = 0; i < 5; ++i) {
    const absl::StatusOr<EmbeddedStep> step = Push(static_cast<float>(i));
    ASSERT_TRUE(step.ok()) << step.status();
    clocks.push_back(step->report.clock.value());
    parts.push_back(worker_->parameters_part());
  }
  EXPECT_THAT(clocks, ElementsAre(0, 0, 6, 7, 8));
  EXPECT_THAT(parts, ElementsAre(0, 0, 1, 2, 0)) << "those after the step that was finished last";
  EXPECT_EQ(worker_->view().clock, Clock64(8));
  EXPECT_EQ(wire_.in_flight_max, 3);
  EXPECT_THAT(wire_.written, ElementsAre(memory_[1].data(), memory_[2].data(), memory_[0].data(), memory_[1].data(),
                                         memory_[2].data()));
  // Two are in flight still: what they push stays.
  EXPECT_EQ(worker_->push_part(), 2);
  EXPECT_THAT(values_, ElementsAre(0, 0, 0, 0, 0, 0, 3, 3, 4, 4, 2, 2));
}

TEST_F(EmbeddedWindowTest, NextWaitsForAllOfThemAndOnlyThenIsTheRangeDone) {
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(Push(1).ok());
  EXPECT_EQ(worker_->view().steps, 6);
  wire_.during_step = [this] { EXPECT_THAT(link_.done, ElementsAre()); };
  NextRange(/*done=*/true);
  EXPECT_EQ(worker_->view().steps, 8);
  EXPECT_THAT(link_.done, ElementsAre(7));
  EXPECT_EQ(worker_->parameters_part(), 8 % 3);
  EXPECT_EQ(wire_.pushes.back().range_samples_done, 8);
}

TEST_F(EmbeddedWindowTest, LeavingWaitsForAllOfThem) {
  ASSERT_TRUE(Push(1).ok());
  ASSERT_TRUE(Push(1).ok());
  wire_.during_step = [this] { EXPECT_THAT(wire_.calls, ElementsAre("open", "seed", "pull")); };
  worker_->Leave("enough");
  EXPECT_EQ(worker_->view().clock, Clock64(7));
  EXPECT_THAT(wire_.calls, ElementsAre("open", "seed", "pull", "close: enough"));
  EXPECT_EQ(link_.left, "enough");
}

TEST_F(EmbeddedWindowTest, WhatHasItsAnswersIsNotGivenBack) {
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(Push(1).ok());
  NextRange(/*done=*/true);
  EXPECT_EQ(link_.done.size(), 1);
  ASSERT_TRUE(Push(1).ok());
  EXPECT_EQ(worker_->view().steps, 8) << "it is in flight";
  worker_->Leave("enough", /*in_order=*/true);
  EXPECT_EQ(link_.left_with.range, RangeId(8));
  EXPECT_EQ(link_.left_with.done_to, 9) << "a position of the epoch";
}

TEST_F(EmbeddedWindowTest, WhatHasNoAnswerIsGivenBack) {
  ASSERT_TRUE(Push(1).ok());
  ASSERT_TRUE(Push(1).ok());
  ASSERT_TRUE(Push(1).ok());
  wire_.step_errors = {absl::UnavailableError("ps-1 is gone")};
  EXPECT_FALSE(Push(1).ok());
  worker_->Leave("failed", /*in_order=*/true);
  EXPECT_EQ(link_.left_with.range, RangeId(7));
  EXPECT_EQ(link_.left_with.done_to, 1) << "of four";
}

TEST_F(EmbeddedTest, WithoutOrderAllOfTheRangeIsGivenBack) {
  link_.work = {Range(7, 0, 8)};
  NextRange();
  ASSERT_TRUE(Step(4).ok());
  worker_->Leave("failed");
  EXPECT_EQ(link_.left, "failed");
  EXPECT_EQ(link_.left_with.range, RangeId());
}

TEST_F(EmbeddedWindowTest, WhatBecameOfAStepTheNextCallsSay) {
  wire_.step_errors = {absl::UnavailableError("ps-1 is gone")};
  ASSERT_TRUE(Push(1).ok());
  ASSERT_TRUE(Push(1).ok());
  EXPECT_EQ(Push(1).status(), absl::UnavailableError("ps-1 is gone"));
  EXPECT_EQ(Push(1).status(), absl::UnavailableError("ps-1 is gone"));
  EXPECT_EQ(worker_->Next(false).status(), absl::UnavailableError("ps-1 is gone"));
  EXPECT_EQ(wire_.pushes.size(), 3);
  worker_->Leave("failed");
  EXPECT_EQ(link_.left, "failed");
  EXPECT_EQ(worker_->view().clock, Clock64(5)) << "nothing more was waited for";
}

TEST_F(EmbeddedWindowTest, StepsInFlightAreLostWithTheLifeThatPushedThem) {
  link_.work = {Range(8, 0, 8)};
  ASSERT_TRUE(Push(1).ok());
  ASSERT_TRUE(Push(1).ok());
  wire_.step_errors = {absl::FailedPreconditionError("not a member")};
  const absl::StatusOr<EmbeddedStep> lost = Push(1);
  ASSERT_TRUE(lost.ok()) << lost.status();
  EXPECT_EQ(lost->outcome, EmbeddedStep::Outcome::kRejoined);
  EXPECT_EQ(worker_->view().steps, 0);
  // The new life begins with none in flight.
  wire_.in_flight_max = 0;
  ASSERT_TRUE(Push(1).ok());
  ASSERT_TRUE(Push(1).ok());
  EXPECT_EQ(worker_->view().steps, 0);
  EXPECT_EQ(wire_.in_flight_max, 2);
  NextRange(/*done=*/true);
  EXPECT_THAT(link_.done, ElementsAre()) << "nothing of the old range";
  EXPECT_EQ(worker_->view().steps, 2);
}

TEST_F(EmbeddedWindowTest, NumberOfAStepCountsThoseInFlight) {
  ASSERT_TRUE(Push(1).ok());
  EXPECT_THAT(Push(std::numeric_limits<float>::infinity()).status().message(), HasSubstr("step 7: "));
}

TEST_F(EmbeddedTest, EndOfTheJobEndsAStepInGoodOrder) {
  link_.work = {Range(7, 0, 8)};
  NextRange();
  wire_.during_step = [this] { link_.on_end_(absl::OkStatus(), "stopped by somebody"); };
  const absl::StatusOr<EmbeddedStep> step = Step(4);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->outcome, EmbeddedStep::Outcome::kEnded);
  const absl::StatusOr<EmbeddedTask> task = worker_->Next(true);
  ASSERT_TRUE(task.ok()) << task.status();
  EXPECT_EQ(std::get<EmbeddedEnd>(*task).reason, "stopped by somebody");
  EXPECT_EQ(worker_->view().ended, "stopped by somebody");
}

TEST_F(EmbeddedTest, InterruptCutsAStepShortAndLeavingStillWorks) {
  link_.work = {Range(7, 0, 8)};
  NextRange();
  wire_.during_step = [this] { worker_->Interrupt("Ctrl-C"); };
  EXPECT_EQ(Step(4).status(), absl::CancelledError("Ctrl-C"));
  EXPECT_EQ(link_.interrupted, "Ctrl-C");
  EXPECT_EQ(worker_->Next(false).status(), absl::CancelledError("Ctrl-C"));
  worker_->Leave("failed: KeyboardInterrupt");
  EXPECT_EQ(link_.left, "failed: KeyboardInterrupt");
}

TEST_F(EmbeddedTest, StandsByOutOfTheClockAndComesBack) {
  link_.work = {StandbyWork{absl::Seconds(1)}, absl::FailedPreconditionError("register again"), Range(9, 0, 4)};
  std::vector<std::string> calls;
  link_.on_pause = [&](absl::Duration) { calls = wire_.calls; };
  EXPECT_EQ(NextRange().work.range, RangeId(9));
  EXPECT_THAT(calls, ElementsAre("open", "seed", "pull", "close: standing by"));
  EXPECT_EQ(worker_->view().lives, 2);
}

TEST_F(EmbeddedTest, EvaluationsPullFirstAndTheLastOneAsAReader) {
  link_.work = {EvaluationWork{.epoch = 1, .final = false, .run_folder = "r"},
                EvaluationWork{.epoch = 2, .final = true, .run_folder = "r"}};
  EvaluationResult result;
  for (const bool final : {false, true}) {
    const absl::StatusOr<EmbeddedTask> task = worker_->Next(false);
    ASSERT_TRUE(task.ok()) << task.status();
    result.work = std::get<EvaluationWork>(*task);
    EXPECT_EQ(result.work.final, final);
    result.metrics.samples = 10;
    result.metrics.accuracy = final ? 0.75 : 0.5;
    ASSERT_TRUE(worker_->ReportEvaluation(result).ok());
  }
  EXPECT_THAT(link_.evaluations, ElementsAre(0.5, 0.75));
  EXPECT_THAT(wire_.calls, ElementsAre("open", "seed", "pull", "pull", "pull", "close: reading the final weights",
                                       "open reader", "pull", "close: has read the weights"));
}

TEST_F(EmbeddedTest, EvaluationsBetweenStepsOnPredictedWeightsReadTheWeightsBesideTheClientThatTrains) {
  predicted_ = true;
  Make({absl::MakeSpan(parameters_)}, {absl::MakeSpan(push_)});
  link_.work = {EvaluationWork{.epoch = 1, .final = false, .run_folder = "r"}, Range(7, 0, 8)};
  const absl::StatusOr<EmbeddedTask> task = worker_->Next(false);
  ASSERT_TRUE(task.ok()) << task.status();
  EvaluationResult result;
  result.work = std::get<EvaluationWork>(*task);
  ASSERT_TRUE(worker_->ReportEvaluation(result).ok());
  NextRange();
  ASSERT_TRUE(Step(4).ok());
  EXPECT_EQ(wire_.pushes.size(), 1u);
  // The last pull is the step's.
  EXPECT_THAT(wire_.calls,
              ElementsAre("open", "seed", "pull", "open reader", "pull", "close: has read the weights", "pull"));
}

TEST_F(EmbeddedTest, ValuesThatAreNotFiniteArePushedNowhere) {
  link_.work = {Range(7, 0, 8)};
  NextRange();
  push_[1] = std::numeric_limits<float>::quiet_NaN();
  const absl::StatusOr<EmbeddedStep> step = Step(4);
  EXPECT_EQ(step.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(step.status().message(), HasSubstr("step 6: the gradient's norm is nan"));
  EXPECT_THAT(wire_.pushes, ElementsAre());
  // The next one is another step.
  push_[1] = 4;
  EXPECT_TRUE(Step(4).ok());
}

TEST_F(EmbeddedTest, NoStepFollowsOneThatIsNotFiniteAndHadBegunToLeave) {
  link_.work = {Range(7, 0, 8)};
  NextRange();
  push_[0] = std::numeric_limits<float>::infinity();
  ASSERT_TRUE(worker_->Ready(1).ok());
  EXPECT_THAT(Step(4).status().message(), HasSubstr("step 6: the gradient's norm is inf"));
  push_[0] = 3;
  EXPECT_THAT(Step(4).status().message(), HasSubstr("step 6: the gradient's norm is inf"));
  EXPECT_THAT(worker_->Next(false).status().message(), HasSubstr("step 6: the gradient's norm is inf"));
  EXPECT_THAT(wire_.pushes, ElementsAre());
  worker_->Leave("failed");
  EXPECT_EQ(link_.left, "failed");
}

TEST_F(EmbeddedTest, AnotherModelThanTheJobsIsRefused) {
  link_.elements = 3;
  EXPECT_THAT(worker_->Next(false).status().message(), HasSubstr("the shard map has 3 elements"));
}

TEST_F(EmbeddedTest, StepWithoutARangeIsRefused) {
  EXPECT_THAT(Step(1).status().message(), HasSubstr("has no samples of the job"));
  worker_->Leave("done");
  EXPECT_THAT(worker_->Next(false).status().message(), HasSubstr("has left the job"));
}

}  // namespace
}  // namespace slackline::worker::embedded_test
