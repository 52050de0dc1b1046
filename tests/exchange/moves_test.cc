// Shards that move between servers while workers train: every push is applied exactly once, nothing is lost, and a
// server that gave a shard up has no say in it any more.
#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exchange/cluster.h"

namespace slackline::moves_test {
namespace {

constexpr float kStart = 1 << 20;
constexpr uint32_t kWorkers = 2;

struct Move {
  size_t from;
  size_t to;
  std::vector<uint32_t> shards;
};

class MovesTest : public testing::TestWithParam<std::tuple<Path, job::Consistency::Mode>> {
 protected:
  MovesTest() {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("moves-" + std::to_string(::getpid()) + "-" + Name(std::get<0>(GetParam())) + "-" +
               Name(std::get<1>(GetParam())));
  }
  ~MovesTest() override { std::filesystem::remove_all(folder_); }

  ClusterShape Shape() {
    ClusterShape shape;
    shape.path = std::get<0>(GetParam());
    shape.mode = std::get<1>(GetParam());
    shape.servers = 2;
    shape.shards = {9001, 5, 2000, 300};
    shape.workers = kWorkers;
    shape.snapshot_folder = folder_;
    shape.change = [](job::Job& job) { job.mutable_durability()->set_snapshot_every_s(0.05); };
    return shape;
  }
  bool means() const { return std::get<1>(GetParam()) == job::Consistency::BSP; }

  std::filesystem::path folder_;
};

// What the shards have in the end, as one reader sees it: how many pushes each has applied.
std::vector<double> Applied(Cluster& cluster) {
  worker::ClientOptions options = cluster.ClientOptions(1);
  options.reader = true;
  TestTrainer reader(options, cluster.map());
  reader.Pull();
  std::vector<double> applied;
  for (const worker::ShardInfo& shard : cluster.map().shards) {
    const auto weights = reader.parameters().subspan(shard.begin, shard.end - shard.begin);
    EXPECT_TRUE(AllAre(weights.front(), weights)) << "a push that counts in part, in shard " << shard.shard.value();
    applied.push_back(kStart - weights.front());
  }
  return applied;
}

TEST_P(MovesTest, NothingIsLostAndNothingCountsTwice) {
  Cluster cluster(Shape());
  const std::vector<float> start(cluster.map().elements, kStart);
  // Each step of a worker takes 1 off every weight: lr is 0.5. In bsp the mean of both does.
  const std::vector<float> gradient(cluster.map().elements, 2);
  std::vector<std::unique_ptr<TestTrainer>> trainers;
  for (uint32_t number = 1; number <= kWorkers; ++number) {
    trainers.push_back(std::make_unique<TestTrainer>(cluster.ClientOptions(number), cluster.map()));
  }
  std::atomic<bool> over = false;
  std::atomic<uint64_t> steps = 0;
  std::atomic<uint64_t> most = UINT64_MAX;
  std::vector<uint64_t> pushed(kWorkers), discarded(kWorkers), lost(kWorkers);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kWorkers; ++i) {
    threads.emplace_back([&, i] {
      TestTrainer& trainer = *trainers[i];
      trainer.Seed(start);
      trainer.Pull();
      for (uint64_t taken = 0; taken < most; ++taken) {
        trainer.BeginStep(gradient);
        const worker::StepReport report = trainer.FinishStep();
        pushed[i] += report.shards_applied + report.shards_discarded;
        discarded[i] += report.shards_discarded;
        lost[i] += report.lost;
        ++steps;
        if (testing::Test::HasFailure()) return;
        // In bsp each waits for the other: both take as many steps.
        uint64_t unknown = UINT64_MAX;
        if (over) most.compare_exchange_strong(unknown, taken + 20);
      }
    });
  }
  const auto train_on = [&] {
    const uint64_t until = steps + 10;
    if (!Eventually([&] { return steps >= until || testing::Test::HasFailure(); })) ADD_FAILURE() << "no progress";
  };
  train_on();
  const size_t third = cluster.AddServer();
  // To a new server, away from one until it has none, and back to it.
  const Move moves[] = {{0, third, {0}}, {1, third, {1}}, {1, 0, {3}}, {third, 1, {0, 1}}, {0, third, {2}}};
  for (const Move& move : moves) {
    cluster.MoveShards(move.from, move.to, move.shards);
    for (const auto& trainer : trainers) trainer->client().Remap(cluster.map());
    train_on();
    if (testing::Test::HasFailure()) break;
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  ASSERT_FALSE(testing::Test::HasFailure());
  for (uint32_t i = 0; i < kWorkers; ++i) EXPECT_EQ(lost[i], 0u) << "worker " << i + 1;
  double all = 0;
  for (const double applied : Applied(cluster)) all += applied;
  if (!means()) {
    EXPECT_EQ(all, static_cast<double>(pushed[0] + pushed[1] - discarded[0] - discarded[1]));
  } else {
    EXPECT_LE(all, static_cast<double>(std::max(pushed[0], pushed[1])));
    EXPECT_GE(all,
              static_cast<double>(std::max(pushed[0], pushed[1])) - static_cast<double>(discarded[0] + discarded[1]));
  }
  // The shards' snapshots are those of the servers that have them now.
  for (const size_t index : {size_t{1}, third}) {
    EXPECT_TRUE(Eventually([&] { return cluster.progress(index).report.durable(); })) << "server " << index + 1;
  }
}

// The server that has the shards is asked, and the one that takes them is gone: nothing has moved.
TEST_P(MovesTest, OneThatIsGivenUpLeavesAllWhereItWas) {
  ClusterShape shape = Shape();
  shape.workers = 1;
  Cluster cluster(shape);
  TestTrainer trainer(cluster.ClientOptions(1), cluster.map());
  trainer.Seed(std::vector<float>(cluster.map().elements, kStart));
  trainer.Pull();
  const std::vector<float> gradient(cluster.map().elements, 2);
  const size_t third = cluster.AddServer();
  for (int step = 0; step < 5; ++step) trainer.Step(gradient);
  cluster.BeginMove(0, third, {0, 2});
  for (int step = 0; step < 5; ++step) trainer.Step(gradient);
  cluster.StopServer(third);
  EXPECT_TRUE(Eventually([&] { return cluster.progress(0).report.backup().lost(); }));
  // Until it is released, it answers nobody.
  trainer.BeginStep(gradient);
  std::atomic<bool> released = false;
  std::thread release([&] {
    EXPECT_TRUE(Eventually([&] { return cluster.progress(1).report.version_max() >= 11; }))
        << "the other server's shards wait";
    released = true;
    cluster.server(0).BackupReleased(cluster.progress(0).report.backup().attachment());
  });
  trainer.FinishStep();
  EXPECT_TRUE(released);
  release.join();
  EXPECT_THAT(Applied(cluster), testing::Each(11));
}

INSTANTIATE_TEST_SUITE_P(
    All, MovesTest,
    testing::Combine(testing::ValuesIn(kPaths),
                     testing::Values(job::Consistency::ASYNC, job::Consistency::SSP, job::Consistency::BSP)),
    [](const auto& test) { return Name(std::get<0>(test.param)) + "_" + Name(std::get<1>(test.param)); });

}  // namespace
}  // namespace slackline::moves_test
