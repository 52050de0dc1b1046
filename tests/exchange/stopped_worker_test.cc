// Workers that are stopped (SIGSTOP) but alive: their sockets stay open and their memory mapped, but they neither read,
// nor write, nor give anything back.
#include <atomic>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exchange/cluster.h"
#include "tests/exchange/peer.h"

namespace slackline::stopped_worker_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// More than sockets hold on the way, so that who is stopped can be in the middle.
constexpr uint64_t kElements = 8 << 20;
constexpr uint64_t kModelBytes = kElements * sizeof(float);
constexpr uint32_t kShards = 2;
constexpr size_t kPinnedMax = 2;
// For what happens sooner or later, on a busy machine and under a sanitizer.
constexpr absl::Duration kLong = absl::Seconds(60);

ClusterShape LargeShards(Path path, job::Consistency::Mode mode) {
  ClusterShape shape;
  shape.path = path;
  shape.mode = mode;
  shape.workers = 3;
  shape.shards = std::vector<uint64_t>(kShards, kElements / kShards);
  shape.change = [](job::Job& job) { job.mutable_wire()->set_chunk_bytes(1 << 20); };
  return shape;
}

// "made STEPS steps, AGAIN streams again".
struct Made {
  uint64_t steps = 0;
  uint64_t streams_again = 0;
};
Made End(PeerProcess& worker) {
  worker.TellToEnd();
  const std::vector<std::string> words = absl::StrSplit(worker.WordsAfter("made"), ' ');
  if (words.size() != 5) return {};
  return {std::stoull(words[0]), std::stoull(words[2])};
}

class StoppedWorkerTest : public testing::TestWithParam<std::tuple<Path, job::Consistency::Mode>> {
 protected:
  StoppedWorkerTest() {
    trainer_.Seed(std::vector<float>(kElements, 100));
    trainer_.Pull();
  }

  std::unique_ptr<PeerProcess> Start(uint32_t number) {
    return StartWorker(number, path_, MapOf(cluster_.map().servers[0], kElements, kShards));
  }
  void Step() {
    trainer_.Step(gradient_);
    ++steps_;
  }
  // At a random moment of what the server and its workers do now.
  void StopSomewhere(PeerProcess& worker) {
    // Through shared memory go only the places of tensors.
    const uint64_t bytes_max = path_ == Path::kSharedMemory ? 1024 : 2 * kModelBytes;
    const double until = Traffic() + static_cast<double>(1 + random_() % bytes_max);
    EXPECT_TRUE(Eventually([&] { return Traffic() >= until; }));
    worker.Stop();
  }
  double Traffic() {
    return cluster_.metrics().counter("slackline_ps_received_bytes_total", "").value() +
           cluster_.metrics().counter("slackline_ps_sent_bytes_total", "").value();
  }
  // What this worker, which alone is not stopped, was told.
  std::string NoticeWith(const std::string& words, const std::string& more_words = "") const {
    for (const std::string& notice : cluster_.notices(1)) {
      if (absl::StrContains(notice, words) && absl::StrContains(notice, more_words)) return notice;
    }
    return "";
  }
  std::string NoticeOfGate(uint64_t step) const {
    return NoticeWith(absl::StrCat("step ", step, ": "), "waits for worker 2");
  }
  void ExpectBounds() {
    EXPECT_LE(cluster_.progress().report.staging_bytes(), cluster_.staging_bytes_max());
    EXPECT_LE(cluster_.pinned_versions(), kShards * kPinnedMax);
  }
  // All pushes of all workers were applied once.
  void ExpectWeightsAfter(uint64_t steps) {
    trainer_.Pull();
    EXPECT_TRUE(AllAre(100 - static_cast<float>(steps), trainer_.parameters()))
        << trainer_.parameters()[0] << " after " << steps << " steps";
  }

  const Path path_ = std::get<Path>(GetParam());
  const job::Consistency::Mode mode_ = std::get<job::Consistency::Mode>(GetParam());
  std::mt19937 random_{PrintedSeed()};
  Cluster cluster_{LargeShards(path_, mode_)};
  TestTrainer trainer_{cluster_.ClientOptions(1), cluster_.map()};
  const std::vector<float> gradient_ = std::vector<float>(kElements, 2);
  std::atomic<uint64_t> steps_ = 0;
};

TEST_P(StoppedWorkerTest, HoldsNobodyAndGoesOnWhenItIsResumed) {
  const std::unique_ptr<PeerProcess> other = Start(2);
  const absl::Time deadline = SteadyTime().Now() + kLong;
  bool in_push = path_ == Path::kSharedMemory;  // there, it is one frame
  bool in_pull = false;
  while (!in_push || !in_pull) {
    ASSERT_LT(SteadyTime().Now(), deadline) << "stopped in a push: " << in_push << ", in a pull: " << in_pull;
    StopSomewhere(*other);
    // What it had sent before arrives meanwhile.
    for (int count = 0; count < 3; ++count) Step();
    ExpectBounds();
    in_push |= cluster_.progress().report.staging_bytes() > 0;
    in_pull |= !Eventually([&] { return cluster_.pinned_versions() == 0; }, 4 * cluster_.timeouts().heartbeat);
    other->Resume();
  }
  const Made made = End(*other);
  EXPECT_EQ(made.streams_again, 0);
  ExpectWeightsAfter(steps_ + made.steps);
}

TEST_P(StoppedWorkerTest, LosesItsStreamWhenOthersNeedTheMemoryThatItHoldsAndComesBack) {
  const std::unique_ptr<PeerProcess> second = Start(2), third = Start(3);
  const absl::Time deadline = SteadyTime().Now() + kLong;
  // Both in the middle of a pull, of different versions.
  for (bool cut_off = false; !cut_off;) {
    ASSERT_LT(SteadyTime().Now(), deadline);
    StopSomewhere(*second);
    Step();
    StopSomewhere(*third);
    for (int count = 0; count < 4; ++count) Step();
    ExpectBounds();
    cut_off = !NoticeWith("slow readers of older versions").empty();
    second->Resume();
    third->Resume();
  }
  const Made made[] = {End(*second), End(*third)};
  EXPECT_GT(made[0].streams_again + made[1].streams_again, 0);
  ExpectWeightsAfter(steps_ + made[0].steps + made[1].steps);
}

TEST_P(StoppedWorkerTest, DoesNotHoldAServerThatEnds) {
  const std::unique_ptr<PeerProcess> other = Start(2);
  StopSomewhere(*other);
  ExpectToEnd([&] { cluster_.StopServer(0); }, [&] { other->Kill(); });
}

INSTANTIATE_TEST_SUITE_P(AllPaths, StoppedWorkerTest,
                         testing::Combine(testing::ValuesIn(kPaths), testing::Values(job::Consistency::ASYNC)),
                         [](const auto& info) { return Name(std::get<Path>(info.param)); });

// --- Modes with a gate ------------------------------------------------------------------------------------------

using StoppedAtGateTest = StoppedWorkerTest;

TEST_P(StoppedAtGateTest, IsToldThatItWasExpelledWhenItIsResumed) {
  cluster_.SetMembers({1, 2});
  const std::unique_ptr<PeerProcess> other = Start(2);
  std::thread step([&] { Step(); });  // in bsp the other cannot make one without us
  StopSomewhere(*other);
  cluster_.SetMembers({1});
  step.join();
  for (int count = 0; count < 5; ++count) Step();
  // Though gRPC still has something to write to it.
  EXPECT_TRUE(Eventually([&] { return cluster_.pinned_versions() == 0; }));
  EXPECT_EQ(cluster_.progress().report.staging_bytes(), 0);
  other->Resume();
  EXPECT_THAT(other->WordsAfter("failed"), AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("member")));
}

// One step in bsp, and as many as the bound allows in ssp.
TEST_P(StoppedAtGateTest, HoldsOthersOnlyAtTheGateWhichNamesIt) {
  cluster_.SetMembers({1, 2});
  const std::unique_ptr<PeerProcess> other = Start(2);
  const uint64_t bound = mode_ == job::Consistency::SSP ? 1 : 0;
  std::atomic<bool> over = false;
  std::thread stopper([&] {
    for (int round = 0; round < 2; ++round) {
      StopSomewhere(*other);
      std::string notice;
      EXPECT_TRUE(Eventually([&] { return !(notice = NoticeOfGate(steps_ + 1)).empty(); }, kLong));
      EXPECT_THAT(notice, HasSubstr(absl::StrCat("which is at clock ", steps_ - bound, ",")));
      ExpectBounds();
      const uint64_t before = steps_;
      other->Resume();
      EXPECT_TRUE(Eventually([&] { return steps_ > before; }));
    }
    over = true;
  });
  while (!over) Step();
  stopper.join();
}

// Under a sanitizer only where the least is on the way, so that most is left to be written.
const std::vector<Path> kGatePaths =
    kSanitized ? std::vector<Path>{Path::kUnix} : std::vector<Path>(std::begin(kPaths), std::end(kPaths));

INSTANTIATE_TEST_SUITE_P(AllPaths, StoppedAtGateTest,
                         testing::Combine(testing::ValuesIn(kGatePaths),
                                          testing::Values(job::Consistency::SSP, job::Consistency::BSP)),
                         [](const auto& info) {
                           return Name(std::get<0>(info.param)) + "_" + Name(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace slackline::stopped_worker_test
