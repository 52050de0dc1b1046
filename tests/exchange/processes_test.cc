// Processes that die while they share memory, and how much memory a server takes.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exchange/raw_stream.h"

namespace slackline {
namespace {

// The program of peer_process.cc. Killed in the destructor.
class PeerProcess {
 public:
  explicit PeerProcess(const std::vector<std::string>& arguments) {
    int in[2], out[2];
    EXPECT_EQ(::pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    std::vector<std::string> words = {SLACKLINE_PEER_PROCESS};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    char* no_settings[] = {nullptr};
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    EXPECT_EQ(::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), no_settings), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    stdin_ = shm::Descriptor(in[1]);
    stdout_ = shm::Descriptor(out[0]);
  }
  ~PeerProcess() { Kill(); }

  pid_t pid() const { return pid_; }
  // The first line that begins with `word`, between those of the log; empty when it ended before.
  std::string LineOf(const std::string& word) {
    std::string line;
    for (char byte; ::read(stdout_.get(), &byte, 1) == 1;) {
      if (byte != '\n') {
        line.push_back(byte);
      } else if (line.starts_with(word)) {
        return line;
      } else {
        line.clear();
      }
    }
    return "";
  }
  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  shm::Descriptor stdin_, stdout_;
};

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
    ASSERT_EQ(keeper.LineOf("holding"), "holding " + std::to_string(4 * round));
    // A version for the one who holds, and one for us.
    for (int count = 0; count < 4; ++count) step();
    ASSERT_TRUE(Eventually([&] { return cluster.pinned_versions() == 1; }));
    keeper.Kill();
    EXPECT_TRUE(Eventually([&] { return cluster.pinned_versions() == 0; }));
  }
  step();
}

// --- Memory -----------------------------------------------------------------------------------------------------

uint64_t StatusBytes(pid_t pid, const std::string& key) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1)) * 1024;
  }
  return 0;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

class MemoryTest : public testing::TestWithParam<Path> {};

// Invariant: 1.15 x parameters x (1 + versions held) + staging + 64 MB; SGD has no state. What lies in the workers'
// own segments is theirs.
TEST_P(MemoryTest, ServerStaysWithinItsBoundsUnderManyWorkersAndStalledReaders) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer takes memory of its own";
  constexpr uint64_t kElements = 8 << 20;
  constexpr uint32_t kWorkers = 8;
  constexpr uint64_t kModel = kElements * sizeof(float);
  PeerProcess server({"server", std::to_string(kElements), std::to_string(kWorkers)});
  worker::ShardMap map;
  map.generation = Cluster::kGeneration;
  map.elements = map.trained_elements = kElements;
  worker::ServerInfo& info = map.servers.emplace_back();
  info.server = ServerId(1);
  info.name = "ps-1";
  std::istringstream line(server.LineOf("address"));
  std::string word;
  for (std::string* field : {&word, &info.address, &info.host, &info.socket, &info.memory_socket}) {
    std::getline(line, *field, '\t');
  }
  for (uint32_t shard = 0; shard < 4; ++shard) {
    map.shards.push_back({ShardId(shard), shard * kElements / 4, (shard + 1) * kElements / 4, ServerId(1)});
  }
  std::vector<std::unique_ptr<RawStream>> stalled;
  for (int count = 0; count < 4; ++count) {
    stalled.push_back(std::make_unique<RawStream>(rpc::DataChannel(info.address), 0));
  }
  std::atomic<uint32_t> taken = 0;
  std::vector<std::thread> threads;
  for (uint32_t number = 1; number <= kWorkers; ++number) {
    threads.emplace_back([&, number] {
      worker::ClientOptions options;
      options.job = Cluster::kJob;
      options.worker = WorkerId(number);
      options.incarnation = Incarnation(100 + number);
      options.same_host = GetParam() == Path::kTcp ? worker::SameHost::kTcp : worker::SameHost::kSharedMemory;
      options.on_notice = [&taken](const std::string& notice) {
        taken += notice.find("open " + Words(GetParam())) != std::string::npos;
      };
      TestTrainer trainer(options, map);
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
  const uint64_t peak = StatusBytes(server.pid(), "VmHWM");
  const uint64_t workers_own = GetParam() == Path::kSharedMemory ? kWorkers * kModel : 0;
  const uint64_t bound = kModel * (1 + 2) * 115 / 100 + kModel + (64 << 20) + workers_own;
  std::cout << "peak " << (peak >> 20) << " MiB, bound " << (bound >> 20) << " MiB, of which the workers' own "
            << (workers_own >> 20) << std::endl;
  EXPECT_GT(peak, kModel);
  EXPECT_LE(peak, bound);
}

INSTANTIATE_TEST_SUITE_P(AllPaths, MemoryTest, testing::Values(Path::kTcp, Path::kSharedMemory),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace slackline
