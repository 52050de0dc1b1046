// Streams that break in the middle of a step, on every path: the push is applied once, and weights that are not whole
// are never used.
#include <atomic>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exchange/raw_stream.h"

namespace slackline::breaks_test {
namespace {

using testing::Contains;
using testing::HasSubstr;

class BreakTest : public testing::TestWithParam<std::tuple<Path, uint32_t>> {
 protected:
  BreakTest() { std::tie(shape_.path, shape_.window) = GetParam(); }

  ClusterShape shape_;
};

// A stream of the same worker makes the server end the older one.
TEST_P(BreakTest, PushesAreAppliedOnce) {
  Cluster cluster(shape_);
  TestTrainer trainer(cluster.ClientOptions(1), cluster.map());
  std::mt19937 random(PrintedSeed());
  std::vector<float> expected = RandomValues(cluster.map().elements, random);
  trainer.Seed(expected);
  trainer.Pull();
  for (int step = 0; step < 30; ++step) {
    if (trainer.client().steps_in_flight() == shape_.window) trainer.FinishStep();
    const std::vector<float> gradient = RandomValues(expected.size(), random);
    trainer.BeginStep(gradient);
    StepPlainly(gradient, Cluster::kLearningRate, expected);
    if (random() % 2 == 0) {
      // The trainer, which opens its own again, may end this one before it is welcome.
      bool welcome = false;
      for (int tries = 0; tries < 100 && !welcome; ++tries) welcome = RawStream(cluster, 1).first().has_welcome();
      EXPECT_TRUE(welcome);
    }
  }
  while (trainer.client().steps_in_flight() > 0) trainer.FinishStep();
  EXPECT_EQ(trainer.parameters(), expected);
  EXPECT_EQ(cluster.version_max(), 30);
  EXPECT_THAT(cluster.notices(1), Contains(HasSubstr("open again " + Words(shape_.path))));
}

// All values of a gradient are equal, so that a shard has equal weights in each of its versions, and a mixture of two
// versions shows. Two workers, whose streams are ended after every step that one has made, at any moment of the next.
TEST_P(BreakTest, WeightsAreNeverAMixture) {
  shape_.shards = {200'000};
  // Fresh pages and large chunks: reading takes long.
  shape_.change = [](job::Job& job) { job.mutable_wire()->set_chunk_bytes(1 << 18); };
  Cluster cluster(shape_);
  std::atomic<bool> over = false;
  std::atomic<int> steps = 0;
  std::vector<std::thread> threads;
  for (const uint32_t number : {1, 2}) {
    threads.emplace_back([&, number] {
      TestTrainer trainer(cluster.ClientOptions(number), cluster.map());
      trainer.Seed(std::vector<float>(cluster.map().elements, 100));
      trainer.Pull();
      const std::vector<float> gradient(cluster.map().elements, 2);
      for (int step = 0; step < 60; ++step) {
        if (trainer.client().steps_in_flight() == shape_.window) trainer.FinishStep();
        ASSERT_TRUE(AllAre(trainer.parameters()[0], trainer.parameters())) << "step " << step;
        ++steps;
        trainer.BeginStep(gradient);
      }
      while (trainer.client().steps_in_flight() > 0) trainer.FinishStep();
      ASSERT_TRUE(AllAre(trainer.parameters()[0], trainer.parameters()));
    });
  }
  std::thread breaker([&] {
    std::mt19937 random(PrintedSeed());
    for (int seen = 0; !over; seen = steps) {
      while (!over && steps == seen) std::this_thread::yield();
      for (uint32_t wait = random() % 1000; wait > 0; --wait) std::this_thread::yield();
      RawStream(cluster, 1 + random() % 2);
    }
  });
  for (std::thread& thread : threads) thread.join();
  over = true;
  breaker.join();
  EXPECT_EQ(cluster.version_max(), 120);
}

std::string NameCase(const testing::TestParamInfo<BreakTest::ParamType>& info) {
  const auto [path, window] = info.param;
  return Name(path) + "_window_" + std::to_string(window);
}

INSTANTIATE_TEST_SUITE_P(AllPaths, BreakTest, testing::Combine(testing::ValuesIn(kPaths), testing::Values(1, 2, 4)),
                         NameCase);

}  // namespace
}  // namespace slackline::breaks_test
