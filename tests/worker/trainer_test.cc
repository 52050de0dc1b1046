// The worker's loop with a fake scheduler, client and model, which the test controls.
#include "worker/trainer/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "tests/images/test_data.h"
#include "tests/worker/scripted.h"

namespace slackline::worker::trainer_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() {
    // Ten images; each one's label is its index.
    WriteFile(folder_ / "train-images-idx3-ubyte", Idx({10, 1, 1}, Bytes(10, 0)));
    WriteFile(folder_ / "train-labels-idx1-ubyte", Idx({10}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
    train_ = *images::Dataset::ReadIdx(folder_.path(), "train");
    prefetcher_ = std::make_unique<images::Prefetcher>(train_, images::Prefetcher::Normalisation{}, 2);
    evaluator_ = std::make_unique<Evaluator>(
        train_,
        Evaluator::Options{
            .normalisation = {}, .batch_size = 4, .class_names = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}});
    options_.batch_size = 4;
    MakeTrainer();
  }

  void MakeTrainer(std::vector<absl::Span<float>> push_memory = {},
                   std::vector<absl::Span<float>> parameter_memory = {}) {
    trainer_.reset();
    trainer_ = std::make_unique<Trainer>(
        options_, Trainer::Parts{.time = time_,
                                 .link = link_,
                                 .group = group_,
                                 .train = train_,
                                 .prefetcher = *prefetcher_,
                                 .evaluator = *evaluator_,
                                 .metrics = trainer_metrics_,
                                 .push_memory = std::move(push_memory),
                                 .parameter_memory = std::move(parameter_memory),
                                 .connect =
                                     [this](const ClientOptions& options, const ShardMap&) {
                                       return absl::StatusOr<std::unique_ptr<Client>>(
                                           std::make_unique<ScriptedClient>(options, wire_));
                                     },
                                 .wait =
                                     [this](absl::Mutex&, const absl::Condition& until, absl::Duration timeout) {
                                       if (until.Eval()) return true;
                                       waits_.push_back(timeout);
                                       time_.Advance(timeout);
                                       return false;
                                     },
                                 .device_time = device_time_});
  }

  static RangeWork Range(uint64_t range, uint64_t begin, uint64_t end) {
    return {.range = RangeId(range), .epoch = 0, .begin = begin, .end = end};
  }

  const TemporaryFolder folder_;
  ManualTime time_;
  std::vector<absl::Duration> waits_;
  const TimeSource* device_time_ = nullptr;
  images::Dataset train_;
  Trainer::Options options_;
  ScriptedLink link_;
  Wire wire_;
  FixedGroup group_;
  slackline::Metrics metrics_;
  TrainerMetrics trainer_metrics_{metrics_};
  std::unique_ptr<images::Prefetcher> prefetcher_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<Trainer> trainer_;
  std::vector<float> memory_ = std::vector<float>(2);  // to push from, where a test wants some
};

TEST_F(TrainerTest, SeedsPullsTrainsItsRangesAndLeaves) {
  link_.work = {Range(7, 0, 6), Range(8, 6, 10)};
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_THAT(wire_.calls, ElementsAre("open", "seed", "pull", "close: the job is done"));
  EXPECT_THAT(link_.done, ElementsAre(7, 8));
  EXPECT_EQ(link_.left, "the job is done");
  ASSERT_EQ(wire_.pushes.size(), 3);  // 4 + 2, 4
  EXPECT_EQ(wire_.pushes[1].range, RangeId(7));
  EXPECT_EQ(wire_.pushes[1].samples, 2);
  EXPECT_EQ(wire_.pushes[1].range_samples_done, 6);
  EXPECT_EQ(wire_.pushes[1].gradient_norm, 5);
  // The images in the epoch's order, each once.
  const std::vector<uint32_t> order = images::EpochOrder(10, options_.seed, 0);
  EXPECT_EQ(group_.labels, std::vector<int64_t>(order.begin(), order.end()));
}

TEST_F(TrainerTest, KeepsAsManyStepsInFlightAsTheWindowAllowsAndEndsARangeWithNone) {
  std::vector<float> memory(4), weights(4);
  options_.window = 2;
  const auto first = absl::MakeSpan(weights).first(2), second = absl::MakeSpan(weights).subspan(2);
  MakeTrainer({absl::MakeSpan(memory).first(2), absl::MakeSpan(memory).subspan(2)}, {first, second});
  EXPECT_THAT(first, ElementsAre(5, 6));  // the initial weights
  link_.work = {Range(7, 0, 6), Range(8, 6, 10)};
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_EQ(wire_.in_flight_max, 2);
  EXPECT_EQ(wire_.pushes.size(), 3);
  EXPECT_THAT(link_.done, ElementsAre(7, 8));
  EXPECT_EQ(link_.progress().Take(absl::Now()).steps, 3);
  EXPECT_THAT(memory, ElementsAre(3, 4, 3, 4));  // in turns
  // While a step computes, no weights are written to where it reads: in flight are those of the step before it.
  EXPECT_THAT(group_.used, ElementsAre(first.data(), first.data(), first.data()));
  EXPECT_THAT(wire_.written, ElementsAre(second.data(), first.data(), second.data()));
}

class TrainerPullsByLayersTest : public TrainerTest {
 protected:
  TrainerPullsByLayersTest() {
    options_.pull_by_layers = true;
    wire_.by_layers = group_.by_layers = true;
    MakeTrainer();
  }
};

TEST_F(TrainerPullsByLayersTest, AStepBeginsWhileWeightsComeAndOpensItsPushAfterThem) {
  link_.work = {Range(7, 0, 8), Range(8, 8, 10)};
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_THAT(wire_.order, ElementsAre("open", "begin to finish", "await 1", "await 2", "finish", "open", "finish",
                                       "open", "finish"))
      << "a range ends with none in flight";
  EXPECT_EQ(wire_.in_flight_max, 1);
  EXPECT_EQ(wire_.pushes.size(), 3);
  EXPECT_EQ(link_.progress().Take(absl::Now()).steps, 3);
}

TEST_F(TrainerPullsByLayersTest, ALayerThatDoesNotComeEndsTheStepBeforeItIsPushed) {
  wire_.layer_error = absl::FailedPreconditionError("fenced");
  link_.work = {Range(7, 0, 8), Range(7, 0, 8)};
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_EQ(link_.joins, 2);
  EXPECT_EQ(wire_.pushes.size(), 3) << "one of the first life, two of the second";
}

TEST_F(TrainerPullsByLayersTest, OnlyPlainStepsDo) {
  const std::vector<std::function<void()>> others = {
      [&] { options_.accumulate = 2; },
      [&] { options_.slowdown = 2; },
      [&] { options_.loss_scale = {.on = true}; },
      [&] { options_.local = {.steps = 2}; },
      [&] { group_.by_layers = false; },
      [&] { wire_.by_layers = false; },
      [&] { options_.pull_by_layers = false; },
  };
  const Trainer::Options plain = options_;
  for (const auto& change : others) {
    options_ = plain;
    wire_.by_layers = group_.by_layers = true;
    wire_.order.clear();
    change();
    MakeTrainer({absl::MakeSpan(memory_)});
    link_.work = {Range(7, 0, 10)};
    EXPECT_EQ(trainer_->Run(), absl::OkStatus());
    EXPECT_THAT(wire_.order, testing::Not(testing::Contains("await 1")));
  }
}

TEST_F(TrainerTest, GradientsLeaveWhileTheyAreMade) {
  link_.work = {Range(7, 0, 8)};
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_THAT(wire_.ready, ElementsAre(1, 0, 1, 0));
}

TEST_F(TrainerTest, RangeMaySayItsBatchSize) {
  RangeWork range = Range(7, 0, 6);
  range.batch_size = 3;
  link_.work = {range, Range(8, 6, 10)};
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  ASSERT_EQ(wire_.pushes.size(), 3);  // 3 + 3, 4
  EXPECT_EQ(wire_.pushes[0].samples, 3);
  EXPECT_EQ(wire_.pushes[2].samples, 4);
}

TEST_F(TrainerTest, PushIsTheMeanOfItsBatchesBySamples) {
  options_.accumulate = 2;
  MakeTrainer();
  link_.work = {Range(7, 0, 6), Range(8, 6, 9)};
  group_.during_step = [this, batch = 0]() mutable {
    group_.gradient[0] = batch == 0 ? 3 : 6;  // in its place
    group_.gradient[1] = batch == 0 ? 4 : -2;
    group_.loss = batch++ == 0 ? 1 : 2.5;
  };
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  ASSERT_EQ(wire_.pushes.size(), 2);  // 4 + 2, 3
  EXPECT_EQ(wire_.pushes[0].samples, 6);
  EXPECT_EQ(wire_.pushes[0].loss, 1.5);
  EXPECT_THAT(wire_.pushed[0], ElementsAre(testing::FloatEq(4), testing::FloatEq(2)));
  EXPECT_NEAR(wire_.pushes[0].gradient_norm, std::sqrt(20), 1e-6);
  EXPECT_EQ(wire_.pushes[1].samples, 3);
  EXPECT_THAT(wire_.pushed[1], ElementsAre(6, -2));
  EXPECT_THAT(wire_.ready, ElementsAre());
}

TEST_F(TrainerTest, AStepThatOverflowsIsSkippedAndTheNextIsScaledLess) {
  options_.loss_scale = {.on = true, .initial = 8, .growth_steps = 2};
  MakeTrainer();
  link_.work = {Range(7, 0, 8), Range(8, 8, 10), Range(9, 0, 8)};
  group_.during_step = [this, step = 0]() mutable {
    group_.gradient[0] = step++ == 1 ? std::numeric_limits<float>::infinity() : 3;
  };
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_EQ(wire_.pushes.size(), 4) << "4 of (4 + 4), 2, 4 + 4";
  EXPECT_THAT(group_.loss_scales, ElementsAre(8, 8, 4, 4, 8)) << "after two good steps it grows again";
  EXPECT_THAT(link_.done, ElementsAre(7, 8, 9)) << "also the range whose last step was skipped";
  EXPECT_THAT(wire_.ready, ElementsAre()) << "nothing leaves before it is known to count";
  EXPECT_THAT(metrics_.Text(), HasSubstr("slackline_worker_steps_skipped_total 1\n"));
}

TEST_F(TrainerTest, AGradientThatOverflowsUnscaledEndsTheWorker) {
  options_.loss_scale = {.on = true, .initial = 4, .growth_steps = 2};
  MakeTrainer();
  link_.work = {Range(7, 0, 10), Range(8, 0, 10)};
  group_.gradient[0] = std::numeric_limits<float>::infinity();
  const absl::Status status = trainer_->Run();
  EXPECT_THAT(group_.loss_scales, ElementsAre(4, 2, 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("the gradient's norm is inf"));
  EXPECT_TRUE(wire_.pushes.empty());
}

TEST_F(TrainerTest, PushIsTheDifferenceThatARoundOfLocalStepsMakes) {
  options_.local = {.steps = 2, .optimizer = {.lr = 0.5}};
  MakeTrainer({absl::MakeSpan(memory_)});
  link_.work = {Range(7, 0, 8), Range(8, 8, 10)};
  std::vector<std::vector<float>> seen;
  group_.during_step = [this, &seen, batch = 0]() mutable {
    seen.emplace_back(group_.parameters().begin(), group_.parameters().end());
    group_.loss = batch++ == 0 ? 1 : 2;
  };
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  ASSERT_EQ(wire_.pushes.size(), 2);  // 4 + 4, 2
  EXPECT_THAT(wire_.pushed[0], ElementsAre(3, 4)) << "two steps of lr 0.5 against (3, 4)";
  EXPECT_EQ(wire_.pushes[0].samples, 8);
  EXPECT_EQ(wire_.pushes[0].range_samples_done, 8);
  EXPECT_EQ(wire_.pushes[0].loss, 1.5);
  EXPECT_EQ(wire_.pushes[0].gradient_norm, 5);
  EXPECT_THAT(wire_.pushed[1], ElementsAre(1.5, 2));
  EXPECT_EQ(wire_.pushes[1].samples, 2);
  // The client of this test writes no weights: a round begins where the one before began.
  EXPECT_THAT(seen, ElementsAre(ElementsAre(5, 6), ElementsAre(3.5, 4), ElementsAre(5, 6)));
  EXPECT_THAT(wire_.ready, ElementsAre());
  EXPECT_EQ(link_.progress().Take(absl::Now()).steps, 2);
}

TEST_F(TrainerTest, LocalEpochsTrainTheRangeSoManyTimes) {
  options_.local = {.epochs = 3, .optimizer = {.lr = 0.5}};
  MakeTrainer({absl::MakeSpan(memory_)});
  link_.work = {Range(7, 0, 6)};
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  ASSERT_EQ(wire_.pushes.size(), 1);
  EXPECT_EQ(wire_.pushes[0].samples, 18);
  EXPECT_EQ(wire_.pushes[0].range_samples_done, 6);
  EXPECT_EQ(group_.used.size(), 5) << "batches of 4";
  for (const int64_t label : group_.labels) EXPECT_EQ(std::count(group_.labels.begin(), group_.labels.end(), label), 3);
}

TEST_F(TrainerTest, InnerStateIsKeptBetweenRoundsAndDiesWithTheLife) {
  options_.local = {.steps = 1, .optimizer = {.lr = 1, .momentum = 0.5}, .keep_state = true};
  MakeTrainer({absl::MakeSpan(memory_)});
  link_.work = {Range(7, 0, 8), absl::FailedPreconditionError("not a member"), Range(8, 8, 10)};
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  ASSERT_EQ(wire_.pushes.size(), 3);
  EXPECT_THAT(wire_.pushed[0], ElementsAre(3, 4));
  EXPECT_THAT(wire_.pushed[1], ElementsAre(4.5, 6));
  EXPECT_THAT(wire_.pushed[2], ElementsAre(3, 4)) << "another life";
}

TEST_F(TrainerTest, StopBetweenTheStepsOfARoundPushesNothing) {
  options_.local = {.steps = 2};
  MakeTrainer({absl::MakeSpan(memory_)});
  link_.work = {Range(7, 0, 8)};
  group_.during_step = [this] { trainer_->Stop(absl::OkStatus(), "told to stop"); };
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_EQ(group_.used.size(), 1);
  EXPECT_THAT(wire_.pushes, ElementsAre());
}

TEST_F(TrainerTest, StopBetweenTheBatchesOfAPushPushesNothing) {
  options_.accumulate = 2;
  MakeTrainer();
  link_.work = {Range(7, 0, 8)};
  group_.during_step = [this] { trainer_->Stop(absl::OkStatus(), "told to stop"); };
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_EQ(group_.used.size(), 1);
  EXPECT_THAT(wire_.pushes, ElementsAre());
}

TEST_F(TrainerTest, SlowWorkerTakesSoManyTimesAsLongAndPushesNothingBefore) {
  options_.slowdown = 12;
  MakeTrainer();
  link_.work = {Range(7, 0, 8)};
  group_.during_step = [this] { time_.Advance(absl::Milliseconds(5)); };
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_THAT(waits_, ElementsAre(absl::Milliseconds(55), absl::Milliseconds(55)));
  EXPECT_THAT(wire_.ready, ElementsAre());
  const StepTotals progress = link_.progress().Take(time_.Now());
  EXPECT_EQ(progress.total.compute, absl::Milliseconds(120));
  EXPECT_EQ(progress.step_median, absl::Milliseconds(60));
}

TEST_F(TrainerTest, SlowWorkerStretchesWhatItsDeviceTookAndNothingElse) {
  ManualTime device_time;
  device_time_ = &device_time;
  options_.slowdown = 12;
  MakeTrainer();
  link_.work = {Range(7, 0, 8)};
  // Of 8 ms another process has had 3; then nearly all.
  int step = 0;
  group_.during_step = [&] {
    time_.Advance(absl::Milliseconds(step == 0 ? 8 : 30));
    device_time.Advance(absl::Milliseconds(step++ == 0 ? 5 : 2));
  };
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_THAT(waits_, ElementsAre(absl::Milliseconds(12 * 5 - 8), absl::ZeroDuration()));
}

TEST_F(TrainerTest, SlowWorkerShowsThatItLivesWhileItWaits) {
  options_.slowdown = 1000;
  MakeTrainer();
  link_.work = {Range(7, 0, 4)};
  group_.during_step = [this] { time_.Advance(absl::Milliseconds(100)); };
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  const absl::Duration part = options_.timeouts.stall / 4;
  ASSERT_GT(waits_.size(), 2u);
  EXPECT_EQ(waits_.front(), part);
  EXPECT_EQ(std::accumulate(waits_.begin(), waits_.end(), absl::ZeroDuration()), 999 * absl::Milliseconds(100));
}

TEST_F(TrainerTest, SlowWorkerThatIsToldToStopPushesNothingMore) {
  options_.slowdown = 12;
  MakeTrainer();
  link_.work = {Range(7, 0, 8)};
  group_.during_step = [this] { trainer_->Stop(absl::OkStatus(), "told to stop"); };
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_THAT(wire_.pushes, ElementsAre());
  EXPECT_EQ(link_.left, "told to stop");
}

TEST_F(TrainerTest, SlowWorkerThatIsExpelledJoinsAgain) {
  options_.slowdown = 12;
  MakeTrainer();
  link_.work = {Range(1, 0, 4), Range(1, 0, 4)};
  group_.during_step = [this] {
    if (link_.joins == 1) link_.on_end_(absl::FailedPreconditionError("silent for 5 s"), "silent for 5 s");
  };
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_EQ(link_.joins, 2);
  EXPECT_EQ(wire_.pushes.size(), 1);
}

TEST_F(TrainerTest, RecordsProgressForTheHeartbeat) {
  link_.work = {Range(1, 0, 10)};
  ASSERT_EQ(trainer_->Run(), absl::OkStatus());
  const StepTotals progress = link_.progress().Take(absl::Now());
  EXPECT_EQ(progress.steps, 3);
  EXPECT_EQ(progress.total.samples, 10);
  EXPECT_EQ(progress.total.clock, Clock64(8));
  EXPECT_EQ(progress.loss_sum, 5);
  EXPECT_EQ(progress.total.gradient_norm, 5);
  EXPECT_EQ(link_.progress().Take(absl::Now()).total.gradient_norm, 0) << "since the last words";
  for (const uint64_t staleness : {6, 7, 8}) EXPECT_EQ(progress.total.staleness.InBucket(staleness), 1) << staleness;
  EXPECT_FALSE(progress.waiting);
}

TEST_F(TrainerTest, LossThatIsNoNumberStopsBeforeItIsPushed) {
  link_.work = {Range(3, 0, 10)};
  group_.loss = std::numeric_limits<double>::quiet_NaN();
  const absl::Status status = trainer_->Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("step 6 (epoch 1, range 3): the loss is nan"));
  EXPECT_THAT(wire_.pushes, ElementsAre());
  EXPECT_THAT(link_.left, HasSubstr("failed: step 6"));
}

TEST_F(TrainerTest, GradientThatIsNoNumberStopsBeforeItIsPushed) {
  link_.work = {Range(3, 0, 10)};
  group_.gradient = {1, std::numeric_limits<float>::infinity()};
  const absl::Status status = trainer_->Run();
  EXPECT_THAT(std::string(status.message()), HasSubstr("the gradient's norm is inf"));
  EXPECT_THAT(wire_.pushes, ElementsAre());
}

TEST_F(TrainerTest, DeviceThatHangsEndsTheRunAndLeavesTheJobWithItsWords) {
  link_.work = {Range(7, 0, 10)};
  group_.failure = absl::DeadlineExceededError("device 1 has not come with bucket 3 of 5");
  EXPECT_EQ(trainer_->Run(), group_.failure);
  EXPECT_THAT(wire_.calls, ElementsAre("open", "seed", "pull", "close: device 1 has not come with bucket 3 of 5"));
  EXPECT_EQ(link_.left, "failed: device 1 has not come with bucket 3 of 5");
  EXPECT_TRUE(wire_.pushes.empty());
}

TEST_F(TrainerTest, StandbyClosesTheStreamsAndComesBackAsAMember) {
  link_.work = {StandbyWork{}, StandbyWork{}, absl::FailedPreconditionError("register again"), Range(1, 0, 4)};
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_EQ(link_.joins, 2);
  EXPECT_THAT(wire_.calls, ElementsAre("open", "seed", "pull", "close: standing by",  //
                                       "open", "pull", "close: the job is done"));
}

TEST_F(TrainerTest, FencedWorkerJoinsAgain) {
  link_.work = {Range(1, 0, 4), Range(1, 0, 4)};
  wire_.step_errors = {absl::FailedPreconditionError("incarnation 1 is fenced"), absl::OkStatus()};
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_EQ(link_.joins, 2);
}

TEST_F(TrainerTest, GivesUpWhenNoLifeBearsFruit) {
  for (int i = 0; i < 10; ++i) link_.work.push_back(absl::FailedPreconditionError("not a member"));
  EXPECT_EQ(trainer_->Run(), absl::FailedPreconditionError("not a member"));
  EXPECT_EQ(link_.joins, 1 + Course::kFruitlessLivesMax);
}

TEST_F(TrainerTest, ExpelledWorkerJoinsAgainThoughTheServersSayNothing) {
  link_.work = {Range(1, 0, 4), Range(1, 0, 4)};
  wire_.during_step = [this] {
    if (link_.joins == 1) link_.on_end_(absl::FailedPreconditionError("silent for 5 s"), "silent for 5 s");
  };
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_EQ(link_.joins, 2);
}

TEST_F(TrainerTest, WorkerThatIsExpelledWhileItComputesWaitsForNoServer) {
  link_.work = {Range(1, 0, 4), Range(1, 0, 4)};
  group_.during_step = [this] {
    if (link_.joins == 1) link_.on_end_(absl::FailedPreconditionError("silent for 5 s"), "silent for 5 s");
  };
  wire_.during_step = [this] { EXPECT_EQ(link_.joins, 2) << "the first life waits for an answer"; };
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_EQ(link_.joins, 2);
}

TEST_F(TrainerTest, EndOfTheJobDuringAStepLeavesInGoodOrder) {
  link_.work = {Range(1, 0, 10)};
  wire_.during_step = [this] { link_.on_end_(absl::OkStatus(), "the job was stopped"); };
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_EQ(wire_.pushes.size(), 1);
  EXPECT_EQ(link_.left, "the job was stopped");
  EXPECT_EQ(link_.interrupted, "the job was stopped");
}

TEST_F(TrainerTest, SilentSchedulerEndsTheRunWithAnError) {
  link_.work = {Range(1, 0, 10)};
  wire_.during_step = [this] { link_.on_end_(absl::UnavailableError("no scheduler"), "silent"); };
  EXPECT_EQ(trainer_->Run(), absl::UnavailableError("no scheduler"));
}

TEST_F(TrainerTest, FinalEvaluationReadsFreshWeightsAndLeavesFiles) {
  link_.work = {StandbyWork{}, EvaluationWork{.epoch = 2, .final = true, .run_folder = folder_.path()}};
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_THAT(wire_.calls, ElementsAre("open", "seed", "pull", "close: standing by", "open reader", "pull",
                                       "close: has read the weights"));
  EXPECT_THAT(link_.evaluations, ElementsAre(1.0));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "report.json"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "confusion.csv"));
}

TEST_F(TrainerTest, EvaluationInAnEpochUsesTheWeightsAtHandAndGoesOnWithNewOnes) {
  link_.work = {Range(1, 0, 4), EvaluationWork{.epoch = 1, .final = false, .run_folder = folder_.path()},
                Range(2, 4, 8)};
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_THAT(wire_.calls, ElementsAre("open", "seed", "pull", "pull", "close: the job is done"));
  EXPECT_THAT(link_.evaluations, ElementsAre(1.0));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "report.json"));
}

TEST_F(TrainerTest, EvaluationsOfTheAverageReadItBesideTheClientThatTrains) {
  options_.averaged = true;
  std::vector<float> memory(2);
  MakeTrainer({}, {absl::MakeSpan(memory)});
  link_.work = {Range(1, 0, 4), EvaluationWork{.epoch = 1, .final = false, .run_folder = folder_.path()},
                Range(2, 4, 8)};
  const float* const trained_on = group_.model().parameters().data();
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_THAT(wire_.calls, ElementsAre("open", "seed", "pull", "open reader", "pull", "close: has read the weights",
                                       "pull", "close: the job is done"));
  EXPECT_THAT(link_.evaluations, ElementsAre(1.0));
  EXPECT_EQ(group_.model().parameters().data(), trained_on);
}

TEST_F(TrainerTest, EvaluationsBetweenStepsOnPredictedWeightsReadTheWeights) {
  options_.predicted = true;
  MakeTrainer();
  link_.work = {Range(1, 0, 4), EvaluationWork{.epoch = 1, .final = false, .run_folder = folder_.path()},
                Range(2, 4, 8)};
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_THAT(wire_.calls, ElementsAre("open", "seed", "pull", "open reader", "pull", "close: has read the weights",
                                       "pull", "close: the job is done"));
}

TEST_F(TrainerTest, ATeacherMovesOnceBeforeEachPush) {
  group_.taught = {1, 2};
  options_.accumulate = 2;
  MakeTrainer();
  link_.work = {Range(1, 0, 8), Range(2, 8, 10)};
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_EQ(wire_.pushes.size(), 2u);
  EXPECT_THAT(group_.moved_after, ElementsAre(0, 8));
  // Nobody else has one.
  EXPECT_THAT(group_.taught, ElementsAre(1, 2));
  EXPECT_THAT(wire_.calls, ElementsAre("open", "seed", "pull", "close: the job is done"));
}

TEST_F(TrainerTest, ATeacherMovesBeforeEachStepOfALocalRound) {
  group_.taught = {1, 2};
  options_.local = {.steps = 2};
  MakeTrainer({absl::MakeSpan(memory_)});
  link_.work = {Range(1, 0, 8), Range(2, 8, 10)};
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_EQ(wire_.pushes.size(), 2u);
  EXPECT_THAT(group_.moved_after, ElementsAre(0, 4, 8));
}

TEST_F(TrainerTest, ATeacherBeginsAsTheAverageThatServersKeep) {
  group_.taught = {1, 2};
  options_.averaged = true;
  std::vector<float> memory(2);
  MakeTrainer({}, {absl::MakeSpan(memory)});
  link_.work = {Range(1, 0, 4)};
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_THAT(wire_.calls, ElementsAre("open", "seed", "pull", "open reader", "pull", "close: has read the weights",
                                       "close: the job is done"));
  EXPECT_THAT(group_.taught, ElementsAre(0, 0));  // what came of the pull
}

class FullDiskTrainerTest : public TrainerTest {
 protected:
  FullDiskTrainerTest() {
    options_.room_max = absl::Seconds(10);
    MakeTrainer();
    link_.work = {EvaluationWork{.epoch = 2, .final = true, .run_folder = folder_.path()}};
    BeFull();
  }
  // Until what is being written is removed, as it is after each attempt.
  void BeFull() { std::filesystem::create_symlink("/dev/full", folder_ / "model.safetensors.tmp"); }
};

TEST_F(FullDiskTrainerTest, TheResultsWaitForRoomAndSaySo) {
  int pauses = 0;
  std::string said;
  link_.on_pause = [&](absl::Duration duration) {
    time_.Advance(duration);
    said = link_.progress().Take(time_.Now()).waits_for;
    if (++pauses < 7) BeFull();
  };
  EXPECT_EQ(trainer_->Run(), absl::OkStatus());
  EXPECT_EQ(pauses, 7);
  EXPECT_THAT(said, HasSubstr("room for the results of the run, at most 10s (checkpoint.timeout_s): cannot write"));
  EXPECT_THAT(said, HasSubstr("MB are free in " + folder_.path()));
  EXPECT_EQ(link_.progress().Take(time_.Now()).waits_for, "");
  EXPECT_THAT(link_.evaluations, ElementsAre(1.0));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "report.json"));
}

TEST_F(FullDiskTrainerTest, TheyAreGivenUpAfterTheTimeForACheckpoint) {
  link_.on_pause = [&](absl::Duration duration) {
    time_.Advance(duration);
    BeFull();
  };
  const absl::Status status = trainer_->Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("free some space there, and continue with `slackline resume`"));
  EXPECT_THAT(link_.evaluations, testing::IsEmpty());
}

}  // namespace
}  // namespace slackline::worker::trainer_test
