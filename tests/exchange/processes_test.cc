// Processes that die while they share memory, and how much memory a server takes.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exchange/peer.h"
#include "tests/exchange/raw_stream.h"

namespace slackline::processes_test {
namespace {

// Mappings and descriptors of our segments in this process.
int SegmentsInSight() {
  int count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:slackline-") != std::string::npos;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    count += std::filesystem::read_symlink(entry, gone).string().find("memfd:slackline-") != std::string::npos;
  }
  return count;
}

int FilesInSharedMemory() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    count += entry.path().filename().string().find("slackline") != std::string::npos;
  }
  return count;
}

TEST(Processes, SegmentsVanishWithBothSides) {
  ASSERT_EQ(SegmentsInSight(), 0);
  {
    Cluster cluster{ClusterShape{}};
    TestTrainer trainer(cluster.ClientOptions(1), cluster.map());
    trainer.Seed(std::vector<float>(cluster.map().elements, 3));
    trainer.Pull();
    trainer.Step(std::vector<float>(cluster.map().elements, 2));
    EXPECT_GT(SegmentsInSight(), 0);
    EXPECT_EQ(FilesInSharedMemory(), 0);
  }
  EXPECT_EQ(SegmentsInSight(), 0);
}

TEST(Processes, WorkerThatIsKilledGivesBackWhatItWasLent) {
  Cluster cluster{ClusterShape{}};
  TestTrainer trainer(cluster.ClientOptions(1), cluster.map());
  std::vector<float> expected(cluster.map().elements, 100);
  trainer.Seed(expected);
  trainer.Pull();
  const std::vector<float> gradient(expected.size(), 2);
  const auto step = [&] {
    trainer.Step(gradient);
    StepPlainly(gradient, Cluster::kLearningRate, expected);
    EXPECT_EQ(trainer.parameters(), expected);
  };
  const worker::ServerInfo& server = cluster.map().servers[0];
  for (int round = 0; round < 3; ++round) {
    PeerProcess keeper({"keeper", server.address, server.memory_socket});
    ASSERT_EQ(keeper.WordsAfter("holding"), std::to_string(4 * round));
    // A version for the one who holds, and one for us.
    for (int count = 0; count < 4; ++count) step();
    ASSERT_TRUE(Eventually([&] { return cluster.pinned_versions() == 1; }));
    keeper.Kill();
    EXPECT_TRUE(Eventually([&] { return cluster.pinned_versions() == 0; }));
  }
  step();
}

// --- Memory -----------------------------------------------------------------------------------------------------

class MemoryTest : public testing::TestWithParam<Path> {
 protected:
  static constexpr uint64_t kElements = 8 << 20;
  static constexpr uint64_t kModel = kElements * sizeof(float);
  static constexpr uint32_t kShards = 4;

  void Start(uint32_t workers, uint64_t staging_bytes) {
    server_.emplace(std::vector<std::string>{"server", std::to_string(kElements), std::to_string(workers),
                                             std::to_string(staging_bytes)});
    map_ = MapOf(ToServer(server_->WordsAfter("address")), kElements, kShards);
  }
  // 1.15 x parameters x (1 + versions held) + staging + 64 MB; SGD has no state. What lies in the workers' own segments
  // is theirs.
  void ExpectBound(uint32_t workers, uint64_t staging_bytes) {
    const uint64_t peak = server_->peak_bytes();
    const uint64_t workers_own = GetParam() == Path::kSharedMemory ? workers * kModel : 0;
    const uint64_t bound = kModel * (1 + 2) * 115 / 100 + staging_bytes + (64 << 20) + workers_own;
    std::cout << "peak " << (peak >> 20) << " MiB, bound " << (bound >> 20) << " MiB, of which the workers' own "
              << (workers_own >> 20) << std::endl;
    EXPECT_GT(peak, kModel);
    EXPECT_LE(peak, bound);
  }

  std::optional<PeerProcess> server_;
  worker::ShardMap map_;
};

TEST_P(MemoryTest, ServerStaysWithinItsBoundsUnderManyWorkersAndStalledReaders) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer takes memory of its own";
  constexpr uint32_t kWorkers = 8;
  Start(kWorkers, kModel);
  std::vector<std::unique_ptr<RawStream>> stalled;
  for (int count = 0; count < 4; ++count) {
    stalled.push_back(std::make_unique<RawStream>(rpc::DataChannel(map_.servers[0].address), 0));
  }
  std::atomic<uint32_t> taken = 0;
  std::vector<std::thread> threads;
  for (uint32_t number = 1; number <= kWorkers; ++number) {
    threads.emplace_back([&, number] {
      worker::ClientOptions options = WorkerOptions(number, GetParam());
      options.on_notice = [&taken](const std::string& notice) {
        taken += notice.find("open " + Words(GetParam())) != std::string::npos;
      };
      TestTrainer trainer(options, map_);
      std::vector<float> gradient(kElements, 2);
      trainer.Seed(gradient);
      trainer.Pull();
      for (size_t step = 0; step < 6; ++step) {
        // The first worker lets a reader ask for a version that the next steps leave behind.
        if (number == 1 && step < stalled.size()) stalled[step]->Write(PullItem(0, 1, 0));
        trainer.Step(gradient);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(taken, kWorkers);  // more, when a stream was opened again
  ExpectBound(kWorkers, kModel);
}

TEST_P(MemoryTest, ServerStaysWithinItsBoundsWhileWorkersAreStopped) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer takes memory of its own";
  // Each may be stopped in the middle of a push.
  constexpr uint32_t kWorkers = 4;
  Start(kWorkers, kWorkers * kModel);
  std::mt19937 random(PrintedSeed());
  TestTrainer trainer(WorkerOptions(1, GetParam()), map_);
  const std::vector<float> gradient(kElements, 2);
  trainer.Seed(std::vector<float>(kElements, 100));
  trainer.Pull();
  std::vector<std::unique_ptr<PeerProcess>> others;
  for (uint32_t number = 2; number <= kWorkers; ++number) {
    others.push_back(StartWorker(number, GetParam(), map_));
  }
  for (int round = 0; round < 8; ++round) {
    for (const auto& other : others) {
      if (random() % 4 == 0) trainer.Step(gradient);
      other->Stop();
    }
    for (int step = 0; step < 3; ++step) trainer.Step(gradient);
    for (const auto& other : others) other->Resume();
  }
  ExpectBound(kWorkers, kWorkers * kModel);
}

INSTANTIATE_TEST_SUITE_P(AllPaths, MemoryTest, testing::Values(Path::kTcp, Path::kSharedMemory),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace slackline::processes_test
