// Several small batches against one large one, and evaluations of other weights, with a real network.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>

#include "tests/images/test_data.h"
#include "tests/worker/scripted.h"
#include "worker/base/step_memory.h"

namespace slackline::worker::accumulate_test {
namespace {

// A trainer of a small network, on 64 images.
class RealTrainer {
 public:
  RealTrainer() {
    WriteImages(folder_.path(), "train", 64, 12);
    train_ = *images::Dataset::ReadIdx(folder_.path(), "train");
    SetComputeThreads(1);
    group_ = *LocalGroup::Create({.kind = ModelKind::kMlp, .hidden = {16}, .filters = {}, .height = 12, .width = 12},
                                 /*seed=*/1, {"cpu"});
  }

  // As a worker does it.
  void Run(const Trainer::Options& options, std::deque<absl::StatusOr<Work>> work) {
    images::Prefetcher prefetcher(train_, {.mean = 0.3, .deviation = 0.4}, 2);
    Evaluator evaluator(
        train_,
        {.normalisation = {}, .batch_size = 32, .class_names = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}});
    slackline::Metrics metrics;
    TrainerMetrics trainer_metrics(metrics);
    ScriptedLink link;
    link.elements = group_->model().elements();
    link.work = std::move(work);
    const SteadyTime time;
    memory = std::make_unique<StepMemory>(Trainer::ParameterMemories(options), link.elements, /*shared=*/false);
    Trainer trainer(options, {.time = time,
                              .link = link,
                              .group = *group_,
                              .train = train_,
                              .prefetcher = prefetcher,
                              .evaluator = evaluator,
                              .metrics = trainer_metrics,
                              .parameter_memory = memory->parts(),
                              .connect = [this](const ClientOptions& client_options, const ShardMap&) {
                                return absl::StatusOr<std::unique_ptr<Client>>(
                                    std::make_unique<ScriptedClient>(client_options, wire));
                              }});
    EXPECT_EQ(trainer.Run(), absl::OkStatus());
  }

  Model& model() { return group_->model(); }
  const std::string& folder() const { return folder_.path(); }

  Wire wire;
  // Of the weights.
  std::unique_ptr<StepMemory> memory;

 private:
  const TemporaryFolder folder_;
  images::Dataset train_;
  std::unique_ptr<LocalGroup> group_;
};

RangeWork Range(uint64_t id, uint64_t begin, uint64_t end) {
  return {.range = RangeId(id), .epoch = 0, .begin = begin, .end = end};
}

// What one range of 64 images is pushed as.
Wire TrainOneRange(uint32_t batch_size, uint32_t accumulate) {
  RealTrainer trainer;
  Trainer::Options options;
  options.batch_size = batch_size;
  options.accumulate = accumulate;
  trainer.Run(options, {Range(1, 0, 64)});
  return trainer.wire;
}

class Accumulate : public testing::TestWithParam<uint32_t> {};

// 32 + 32, and 48 + 16.
INSTANTIATE_TEST_SUITE_P(BatchSize, Accumulate, testing::Values(32, 48));

TEST_P(Accumulate, TwoBatchesEqualOneOfTheirSize) {
  const Wire whole = TrainOneRange(64, 1), parts = TrainOneRange(GetParam(), 2);
  ASSERT_EQ(whole.pushes.size(), 1u);
  ASSERT_EQ(parts.pushes.size(), 1u);
  EXPECT_EQ(parts.pushes[0].samples, 64u);
  EXPECT_NEAR(parts.pushes[0].loss, whole.pushes[0].loss, 1e-6);
  EXPECT_GT(whole.pushes[0].gradient_norm, 0.1);
  for (size_t i = 0; i < whole.pushed[0].size(); ++i) {
    ASSERT_NEAR(parts.pushed[0][i], whole.pushed[0][i], 1e-6) << "element " << i;
  }
}

// A network lets go of its own memory when it computes on the average: what is trained lies elsewhere from the start.
TEST(EvaluationOfTheAverage, TrainingGoesOnInMemoryThatIsStillThere) {
  RealTrainer trainer;
  Trainer::Options options;
  options.averaged = true;
  options.batch_size = 32;
  std::vector<const float*> pulled_to;
  trainer.wire.on_pull = [&](absl::Span<float> parameters) {
    pulled_to.push_back(parameters.data());
    std::fill(parameters.begin(), parameters.end(), 0.01f * static_cast<float>(pulled_to.size()));
  };
  trainer.Run(options, {Range(1, 0, 32), EvaluationWork{.epoch = 1, .final = false, .run_folder = trainer.folder()},
                        Range(2, 32, 64)});
  ASSERT_EQ(trainer.memory->parts().size(), 1u);
  const float* const trained = trainer.memory->parts().front().data();
  // To begin with, the average, and once more after the evaluation.
  ASSERT_EQ(pulled_to.size(), 3u);
  EXPECT_EQ(pulled_to[0], trained);
  EXPECT_NE(pulled_to[1], trained);
  EXPECT_EQ(pulled_to[2], trained);
  EXPECT_EQ(trainer.model().parameters().data(), trained);
  EXPECT_EQ(trainer.model().parameters().front(), 0.03f);
  EXPECT_EQ(trainer.wire.pushes.size(), 2u);
}

}  // namespace
}  // namespace slackline::worker::accumulate_test
