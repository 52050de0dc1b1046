// Weights are the same to the bit, whatever path the bytes take.
#include <sys/resource.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <thread>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exchange/cluster.h"
#include "worker/base/step_memory.h"

namespace slackline::paths_test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

// Shards from one element to a few chunks, around the borders of chunks and of what is copied into a frame.
std::vector<uint64_t> RandomShards(std::mt19937& random) {
  constexpr uint64_t kSizes[] = {1, 2, 1023, 1024, 1025, 4096, 4097, 5121, 9001};
  std::vector<uint64_t> shards(2 + random() % 4);
  for (uint64_t& elements : shards) elements = kSizes[random() % std::size(kSizes)];
  shards.back() = 9001;
  return shards;
}

// Whether each shard has the weights of one of `states`: a pull may bring later steps in flight, too.
bool IsOneOf(const std::deque<std::vector<float>>& states, absl::Span<const float> weights,
             const worker::ShardMap& map) {
  return absl::c_all_of(map.shards, [&](const worker::ShardInfo& shard) {
    return absl::c_any_of(states, [&](const std::vector<float>& state) {
      return std::equal(state.begin() + shard.begin, state.begin() + shard.end, weights.begin() + shard.begin);
    });
  });
}

class PathTest : public testing::TestWithParam<std::tuple<Path, uint32_t, uint32_t, job::Consistency::Mode>> {
 protected:
  PathTest() {
    std::tie(shape_.path, shape_.window, shape_.servers, shape_.mode) = GetParam();
    shape_.shards = RandomShards(random_);
  }

  std::mt19937 random_{PrintedSeed()};
  ClusterShape shape_;
};

TEST_P(PathTest, GradientsOfOneWorkerComeBackAsWeights) {
  shape_.workers = 1;
  Cluster cluster(shape_);
  TestTrainer trainer(cluster.ClientOptions(1), cluster.map());
  std::vector<float> expected = RandomValues(cluster.map().elements, random_);
  trainer.Seed(expected);
  trainer.Pull();
  EXPECT_EQ(trainer.parameters(), expected);
  constexpr int kSteps = 12;
  std::deque<std::vector<float>> after;  // each step in flight
  for (int step = 0; step < kSteps; ++step) {
    if (trainer.client().steps_in_flight() == shape_.window) {
      trainer.FinishStep();
      ASSERT_TRUE(IsOneOf(after, trainer.parameters(), cluster.map())) << "step " << step;
      after.pop_front();
    }
    const std::vector<float> gradient = RandomValues(expected.size(), random_);
    trainer.BeginStep(gradient);
    StepPlainly(gradient, Cluster::kLearningRate, expected);
    after.push_back(expected);
  }
  while (trainer.client().steps_in_flight() > 0) {
    const worker::StepReport report = trainer.FinishStep();
    EXPECT_EQ(report.shards_applied, shape_.shards.size());
  }
  EXPECT_EQ(trainer.parameters(), expected);
  for (uint32_t server = 1; server <= shape_.servers; ++server) {
    EXPECT_THAT(cluster.notices(1), Contains(HasSubstr("open " + Words(shape_.path)))) << "ps-" << server;
  }
}

TEST_P(PathTest, GradientsOfTwoWorkersAddUp) {
  Cluster cluster(shape_);
  std::vector<float> expected = RandomValues(cluster.map().elements, random_);
  std::vector<std::unique_ptr<TestTrainer>> trainers;
  for (const uint32_t number : {1, 2}) {
    trainers.push_back(std::make_unique<TestTrainer>(cluster.ClientOptions(number), cluster.map()));
    trainers.back()->Seed(expected);
    trainers.back()->Pull();
  }
  constexpr int kSteps = 8;
  std::vector<std::vector<std::vector<float>>> gradients(2);
  // bsp takes one step with the mean of both, softsync with that of any two.
  const bool mean = shape_.mode == job::Consistency::BSP || shape_.mode == job::Consistency::SOFTSYNC;
  const float factor = Cluster::kLearningRate / (mean ? 2 : 1);
  for (auto& mine : gradients) {
    for (int step = 0; step < kSteps; ++step) mine.push_back(RandomValues(expected.size(), random_));
    for (const std::vector<float>& gradient : mine) StepPlainly(gradient, factor, expected);
  }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      for (const std::vector<float>& gradient : gradients[i]) {
        if (trainers[i]->client().steps_in_flight() == shape_.window) trainers[i]->FinishStep();
        trainers[i]->BeginStep(gradient);
      }
      while (trainers[i]->client().steps_in_flight() > 0) trainers[i]->FinishStep();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& trainer : trainers) {
    trainer->Pull();
    EXPECT_EQ(trainer->parameters(), expected);
  }
}

std::string NameCase(const testing::TestParamInfo<PathTest::ParamType>& info) {
  const auto [path, window, servers, mode] = info.param;
  return Name(path) + "_window_" + std::to_string(window) + "_servers_" + std::to_string(servers) + "_" + Name(mode);
}

INSTANTIATE_TEST_SUITE_P(AllPaths, PathTest,
                         testing::Combine(testing::ValuesIn(kPaths), testing::Values(1, 2, 4), testing::Values(1, 2),
                                          testing::Values(job::Consistency::ASYNC, job::Consistency::SSP,
                                                          job::Consistency::BSP, job::Consistency::SOFTSYNC)),
                         NameCase);

// --- Paths that are not there -----------------------------------------------------------------------------------

class FallbackTest : public testing::Test {
 protected:
  // A worker that was told `map` makes steps, over this path.
  void ExpectSteps(const worker::ShardMap& map, Path path, bool shared_pushes = true) {
    TestTrainer trainer(cluster_.ClientOptions(1), map, shared_pushes);
    std::vector<float> expected(map.elements, 3);
    trainer.Seed(expected);
    trainer.Pull();
    for (int step = 0; step < 3; ++step) {
      trainer.Step(std::vector<float>(map.elements, 2));
      StepPlainly(std::vector<float>(map.elements, 2), Cluster::kLearningRate, expected);
      EXPECT_EQ(trainer.parameters(), expected);
    }
    EXPECT_THAT(cluster_.notices(1),
                Contains(HasSubstr("stream to ps-1 (" + map.servers[0].address + ") open " + Words(path))));
  }
  void ExpectNotice(const std::string& words) { EXPECT_THAT(cluster_.notices(1), Contains(HasSubstr(words))); }

  Cluster cluster_{ClusterShape{}};
};

TEST_F(FallbackTest, SharedMemoryIsTakenWhereItIsThere) { ExpectSteps(cluster_.map(), Path::kSharedMemory); }

TEST_F(FallbackTest, PushesThatLieElsewhereTravelBySocketAndPullsDoNot) {
  ExpectSteps(cluster_.map(), Path::kSharedMemory, /*shared_pushes=*/false);
}

TEST_F(FallbackTest, PushOutsideOfTheSegmentTravelsBySocket) {
  worker::StepMemory other(1, 10, /*shared=*/true);
  worker::ClientOptions options = cluster_.ClientOptions(1);
  options.push_segment = other.segment();
  TestTrainer trainer(options, cluster_.map(), /*shared=*/false);
  trainer.Seed(std::vector<float>(cluster_.map().elements, 3));
  trainer.Pull();
  trainer.Step(std::vector<float>(cluster_.map().elements, 2));
  EXPECT_THAT(trainer.parameters(), testing::Each(2.0F));
}

TEST_F(FallbackTest, WithoutADescriptorSocketTheUnixSocketIsTaken) {
  worker::ShardMap map = cluster_.map();
  map.servers[0].memory_socket.clear();
  ExpectSteps(map, Path::kUnix);
}

TEST_F(FallbackTest, DescriptorSocketThatNobodyListensAtIsNamed) {
  worker::ShardMap map = cluster_.map();
  map.servers[0].memory_socket = "slackline-nobody";
  ExpectSteps(map, Path::kUnix);
  ExpectNotice("no shared memory with ps-1");
  ExpectNotice("nobody listens at slackline-nobody");
}

TEST_F(FallbackTest, ServerOfAnotherHostIsReachedByTcp) {
  worker::ShardMap map = cluster_.map();
  map.servers[0].host = "another";
  ExpectSteps(map, Path::kTcp);
}

// Each shard's segment takes a descriptor, and connections need some, too.
TEST(Fallback, SoManyShardsThatDescriptorsWouldRunOutShareNoMemory) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const absl::Cleanup restore = [&] { setrlimit(RLIMIT_NOFILE, &before); };
  rlimit small = before;
  small.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &small), 0);
  ClusterShape shape;
  shape.shards.assign(200, 5000);
  Cluster cluster(shape);
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    EXPECT_THAT(std::filesystem::read_symlink(entry, gone).string(), Not(HasSubstr("slackline-shard")));
  }
  TestTrainer trainer(cluster.ClientOptions(1), cluster.map());
  trainer.Seed(std::vector<float>(cluster.map().elements, 100));
  trainer.Pull();
  trainer.Step(std::vector<float>(cluster.map().elements, 2));
  EXPECT_TRUE(AllAre(99, trainer.parameters()));
}

TEST(Fallback, ServerThatMayNotShareMemoryDoesNot) {
  ClusterShape shape;
  shape.change = [](job::Job& job) { job.mutable_wire()->set_same_host(job::Wire::UNIX); };
  Cluster cluster(shape);
  EXPECT_EQ(cluster.map().servers[0].memory_socket, "");
  TestTrainer trainer(cluster.ClientOptions(1), cluster.map());
  trainer.Seed(std::vector<float>(cluster.map().elements, 3));
  trainer.Pull();
  EXPECT_THAT(cluster.notices(1), Contains(HasSubstr("over a Unix socket")));
}

}  // namespace
}  // namespace slackline::paths_test
