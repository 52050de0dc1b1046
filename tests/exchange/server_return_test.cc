// A server that crashes in the middle of training and continues from its snapshots: pushes that it had answered since
// are lost and reported as lost; everything else is applied exactly once.
#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exchange/cluster.h"

namespace slackline::server_return_test {
namespace {

constexpr float kStart = 1 << 20;
constexpr uint32_t kWorkers = 2;
constexpr uint64_t kSteps = 60;
constexpr size_t kRestarts = 3;

// What a worker has to say of all its steps.
struct Ledger {
  uint64_t pushed = 0;     // sub-pushes
  uint64_t discarded = 0;  // for good
  uint64_t lost = 0;       // of those that were answered
};

class ServerReturnTest : public testing::TestWithParam<std::tuple<Path, job::Consistency::Mode>> {
 protected:
  ServerReturnTest() {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("server-return-" + std::to_string(::getpid()) + "-" + Name(std::get<0>(GetParam())) + "-" +
               Name(std::get<1>(GetParam())));
  }
  ~ServerReturnTest() override { std::filesystem::remove_all(folder_); }

  ClusterShape Shape() {
    ClusterShape shape;
    shape.path = std::get<0>(GetParam());
    shape.mode = std::get<1>(GetParam());
    shape.servers = 2;
    shape.shards = {9001, 5, 2000};
    shape.workers = kWorkers;
    shape.snapshot_folder = folder_;
    shape.change = [](job::Job& job) { job.mutable_durability()->set_snapshot_every_s(0.05); };
    return shape;
  }

  std::filesystem::path folder_;
};

// Whoever tells the scheduler needs not ask again and again: a server that dies meanwhile is thought to have nothing.
TEST_P(ServerReturnTest, ThatAllIsOnDiskIsNewsAtOnce) {
  ClusterShape shape = Shape();
  shape.change = [](job::Job& job) { job.mutable_durability()->set_snapshot_every_s(3600); };
  Cluster cluster(shape);
  ps::Sequencer& server = cluster.server(0);
  std::atomic<bool> waits = true, given_up = false;
  std::thread teller([&] {
    while (!given_up && !cluster.progress().report.durable()) server.AwaitNews(absl::Minutes(2));
    waits = false;
  });
  TestTrainer trainer(cluster.ClientOptions(1), cluster.map());
  trainer.Seed(std::vector<float>(cluster.map().elements, kStart));
  // Nothing is served before.
  trainer.Pull();
  EXPECT_TRUE(cluster.progress().report.durable());
  EXPECT_TRUE(Eventually([&] { return !waits; }));
  given_up = true;
  server.WakeUp();
  teller.join();
}

TEST_P(ServerReturnTest, WhatIsAppliedLostAndDiscardedAddsUp) {
  Cluster cluster(Shape());
  const size_t shards = cluster.map().shards.size();
  const std::vector<float> start(cluster.map().elements, kStart);
  // Each step of a worker takes 1 off every weight: lr is 0.5. In bsp the mean of both does.
  const std::vector<float> gradient(cluster.map().elements, 2);

  std::vector<std::unique_ptr<TestTrainer>> trainers;
  for (uint32_t number = 1; number <= kWorkers; ++number) {
    trainers.push_back(std::make_unique<TestTrainer>(cluster.ClientOptions(number), cluster.map()));
  }
  std::vector<Ledger> ledgers(kWorkers);
  std::atomic<uint64_t> steps_done = 0;
  // Nobody may be done before the last restart: who does not speak to a server again does not hear what it has lost.
  std::atomic<size_t> restarts_done = 0;
  const auto may_step = [&](uint64_t step) {
    return step < (restarts_done + 2) * kSteps / (kRestarts + 2) || testing::Test::HasFailure();
  };
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kWorkers; ++i) {
    threads.emplace_back([&, i] {
      TestTrainer& trainer = *trainers[i];
      trainer.Seed(start);
      trainer.Pull();
      for (uint64_t step = 0; step < kSteps; ++step) {
        if (!Eventually([&] { return may_step(step); })) ADD_FAILURE() << "no restart before step " << step;
        trainer.BeginStep(gradient);
        const worker::StepReport report = trainer.FinishStep();
        ledgers[i].pushed += report.shards_applied + report.shards_discarded;
        ledgers[i].discarded += report.shards_discarded;
        ledgers[i].lost += report.lost;
        ++steps_done;
        if (testing::Test::HasFailure()) return;
      }
    });
  }
  for (size_t restart = 0; restart < kRestarts; ++restart) {
    const uint64_t until = (restart + 1) * kWorkers * kSteps / (kRestarts + 2);
    if (!Eventually([&] { return steps_done >= until || testing::Test::HasFailure(); })) ADD_FAILURE() << "no progress";
    const size_t index = restart % 2;
    ASSERT_TRUE(cluster.progress(index).report.durable());
    cluster.StopServer(index);
    cluster.StartServerAgain(index);
    for (const auto& trainer : trainers) trainer->client().Remap(cluster.map());
    ++restarts_done;
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_FALSE(testing::Test::HasFailure());

  // Weights of all shards as one reader sees them, when all is answered.
  worker::ClientOptions options = cluster.ClientOptions(1);
  options.reader = true;
  TestTrainer reader(options, cluster.map());
  reader.Pull();
  double taken = 0;
  for (const worker::ShardInfo& shard : cluster.map().shards) {
    const auto weights = reader.parameters().subspan(shard.begin, shard.end - shard.begin);
    ASSERT_TRUE(AllAre(weights.front(), weights)) << "a push that counts in part, in shard " << shard.shard.value();
    taken += kStart - weights.front();
  }
  Ledger all;
  for (const Ledger& ledger : ledgers) {
    EXPECT_EQ(ledger.pushed, kSteps * shards);
    all.pushed += ledger.pushed;
    all.discarded += ledger.discarded;
    all.lost += ledger.lost;
  }
  const bool means = std::get<1>(GetParam()) == job::Consistency::BSP;
  if (!means) {
    EXPECT_EQ(taken, static_cast<double>(all.pushed - all.discarded - all.lost)) << all.lost << " lost";
  } else {
    // A step of which one worker's push was discarded is the other's alone, and counts as much as one of both.
    EXPECT_LE(taken, static_cast<double>(kSteps * shards));
    EXPECT_GE(taken, static_cast<double>(kSteps * shards) - static_cast<double>(all.discarded + all.lost));
  }
}

// Snapshots are far apart; the last one comes when nobody can push any more.
TEST_P(ServerReturnTest, OneThatIsToldToStopLosesNothing) {
  ClusterShape shape = Shape();
  shape.workers = 1;
  shape.change = [](job::Job& job) { job.mutable_durability()->set_snapshot_every_s(10000); };
  Cluster cluster(shape);
  TestTrainer trainer(cluster.ClientOptions(1), cluster.map());
  trainer.Seed(std::vector<float>(cluster.map().elements, kStart));
  trainer.Pull();
  constexpr int kPushes = 20;
  for (int step = 0; step < kPushes; ++step) {
    if (step == kPushes / 2) {
      cluster.TellServerToStop(1);
      cluster.StartServerAgain(1);
      trainer.client().Remap(cluster.map());
    }
    trainer.BeginStep(std::vector<float>(cluster.map().elements, 2));
    const worker::StepReport report = trainer.FinishStep();
    EXPECT_EQ(report.lost, 0u);
    // What it was computed from is of an earlier lineage.
    EXPECT_EQ(report.shards_discarded > 0, step == kPushes / 2) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ServerReturnTest,
    testing::Combine(testing::ValuesIn(kPaths),
                     testing::Values(job::Consistency::ASYNC, job::Consistency::SSP, job::Consistency::BSP)),
    [](const auto& test) { return Name(std::get<0>(test.param)) + "_" + Name(std::get<1>(test.param)); });

}  // namespace
}  // namespace slackline::server_return_test
