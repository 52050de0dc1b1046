// Servers that are stopped (SIGSTOP) but alive: the connection stays, and nobody answers.
#include <atomic>
#include <thread>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exchange/cluster.h"
#include "tests/exchange/peer.h"

namespace slackline::stopped_server_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// More than sockets hold on the way, so that a server can be stopped in the middle of a step.
constexpr uint64_t kElements = 8 << 20;

class StoppedServerTest : public testing::TestWithParam<Path> {
 protected:
  StoppedServerTest() {
    options_.on_notice = [this](const std::string& notice) {
      if (resume_when_missed_ && absl::StrContains(notice, "no word from ps-1")) server_.Resume();
    };
  }
  std::unique_ptr<TestTrainer> Start() {
    auto trainer = std::make_unique<TestTrainer>(options_, map_);
    trainer->Seed(std::vector<float>(kElements, 100));
    trainer->Pull();
    return trainer;
  }
  absl::Status Step(TestTrainer& trainer, absl::Duration timeout) {
    trainer.BeginStep(gradient_);
    return trainer.TryFinishStep(timeout).status();
  }
  void ExpectName(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("no word from ps-1 (" + map_.servers[0].address + ") for "), HasSubstr("shard ")));
  }

  PeerProcess server_{{"server", std::to_string(kElements), "1", "0"}};
  const worker::ShardMap map_ = MapOf(ToServer(server_.WordsAfter("address")), kElements, 4);
  worker::ClientOptions options_ = WorkerOptions(1, GetParam());
  const std::vector<float> gradient_ = std::vector<float>(kElements, 2);
  std::mt19937 random_{PrintedSeed()};
  std::atomic<bool> resume_when_missed_ = false;
};

// In the middle of a step, wherever that is.
TEST_P(StoppedServerTest, IsNamedAndHoldsNobodyBeyondTheDeadline) {
  std::unique_ptr<TestTrainer> trainer = Start();
  std::atomic<int> steps = 0;
  std::thread stopper([&] {
    EXPECT_TRUE(Eventually([&] { return steps >= 2; }));
    const absl::Time moment = absl::Now() + absl::Microseconds(random_() % 50'000);
    while (absl::Now() < moment) std::this_thread::yield();
    server_.Stop();
  });
  const auto step_until_it_fails = [&] {
    absl::Status status;
    for (; status.ok(); ++steps) status = Step(*trainer, absl::Milliseconds(500));
    ExpectName(status);
  };
  ExpectToEnd(step_until_it_fails, [&] { server_.Kill(); });
  stopper.join();
  ExpectToEnd([&] { trainer.reset(); }, [&] { server_.Kill(); });
}

TEST_P(StoppedServerTest, GoesOnWhereItWasWhenItIsResumed) {
  const std::unique_ptr<TestTrainer> trainer = Start();
  resume_when_missed_ = true;
  for (int round = 1; round <= 3; ++round) {
    server_.Stop();
    EXPECT_TRUE(Step(*trainer, absl::Seconds(60)).ok());
    EXPECT_TRUE(AllAre(100 - static_cast<float>(round), trainer->parameters())) << "round " << round;
  }
}

TEST_P(StoppedServerTest, IsNamedToThoseWhoComeNew) {
  server_.Stop();
  TestTrainer trainer(options_, map_);
  const absl::Status status = trainer.client().Pull(trainer.parameters(), absl::Milliseconds(500));
  ExpectName(status);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no stream to it"));
}

INSTANTIATE_TEST_SUITE_P(AllPaths, StoppedServerTest, testing::ValuesIn(kPaths),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace slackline::stopped_server_test
