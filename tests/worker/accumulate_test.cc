// Several small batches and one large one, with a real network.
#include <gtest/gtest.h>
#include "tests/worker/scripted.h"
#include "tests/worker/test_data.h"

namespace slackline::worker {
namespace {

// What one range of 64 images is pushed as.
Wire TrainOneRange(uint32_t batch_size, uint32_t accumulate) {
  const TemporaryFolder folder;
  WriteImages(folder.path(), "train", 64, 12);
  const Dataset train = *Dataset::ReadIdx(folder.path(), "train");
  const ModelSpec spec = {.kind = ModelKind::kMlp, .hidden = {16}, .filters = {}, .height = 12, .width = 12};
  SetComputeThreads(1);
  const auto group = *LocalGroup::Create(spec, /*seed=*/1, {"cpu"});
  Prefetcher prefetcher(train, {.mean = 0.3, .deviation = 0.4}, 2);
  Evaluator evaluator(train, {.normalisation = {}, .batch_size = 4, .class_names = {}});
  slackline::Metrics metrics;
  TrainerMetrics trainer_metrics(metrics);
  ScriptedLink link;
  link.elements = group->model().elements();
  link.work = {RangeWork{.range = RangeId(1), .epoch = 0, .begin = 0, .end = 64}};
  Wire wire;
  const SteadyTime time;
  Trainer::Options options;
  options.batch_size = batch_size;
  options.accumulate = accumulate;
  Trainer trainer(options, {.time = time,
                            .link = link,
                            .group = *group,
                            .train = train,
                            .prefetcher = prefetcher,
                            .evaluator = evaluator,
                            .metrics = trainer_metrics,
                            .connect = [&wire](const ClientOptions& client_options, const ShardMap&) {
                              return absl::StatusOr<std::unique_ptr<Client>>(
                                  std::make_unique<ScriptedClient>(client_options, wire));
                            }});
  EXPECT_EQ(trainer.Run(), absl::OkStatus());
  return wire;
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

}  // namespace
}  // namespace slackline::worker
