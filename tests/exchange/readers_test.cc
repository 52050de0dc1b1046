// Readers that are slow, or never read, hold up nobody for long.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exchange/raw_stream.h"

namespace slackline::readers_test {
namespace {

using testing::HasSubstr;

// More than gRPC takes from a reader that does not read.
constexpr uint64_t kElements = 1 << 20;

ClusterShape OneLargeShard(Path path) {
  ClusterShape shape;
  shape.path = path;
  shape.window = 2;
  shape.shards = {kElements};
  shape.change = [](job::Job& job) { job.mutable_wire()->set_chunk_bytes(1 << 18); };
  return shape;
}

std::shared_ptr<grpc::Channel> NarrowChannel(const Cluster& cluster) {
  grpc::ChannelArguments narrow;
  narrow.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  narrow.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64 << 10);
  narrow.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(cluster.map().servers[0].address, grpc::InsecureChannelCredentials(), narrow);
}

// Reads until the pull that the stream has asked for is there, or the stream has ended. Returns the last item.
wire::ServerItem AwaitWeights(RawStream& stream) {
  wire::ServerItem item;
  do {
    item = stream.ReadAnswer();
  } while (item.has_pull() && !item.pull().has_done());
  return item;
}

class ReaderTest : public testing::TestWithParam<Path> {
 protected:
  ReaderTest() {
    trainer_.Seed(std::vector<float>(kElements, 100));
    trainer_.Pull();
  }
  void Step() {
    trainer_.Step(std::vector<float>(kElements, 2));
    weight_ -= 1;
    ASSERT_TRUE(AllAre(weight_, trainer_.parameters()));
  }

  Cluster cluster_{OneLargeShard(GetParam())};
  TestTrainer trainer_{cluster_.ClientOptions(1), cluster_.map()};
  float weight_ = 100;
};

TEST_P(ReaderTest, ThoseWhoDoNotReadTheirStreamAreCutOff) {
  std::vector<std::unique_ptr<RawStream>> readers;
  for (int count = 0; count < 4; ++count) {
    readers.push_back(std::make_unique<RawStream>(NarrowChannel(cluster_), 0));
    readers.back()->Write(PullItem(0, 1, 0));
    Step();
  }
  EXPECT_LE(cluster_.pinned_versions(), 2);
  // The first holds a version, for which the others wait until it is gone.
  ASSERT_TRUE(AwaitWeights(*readers.back()).pull().has_done());
  while (readers[0]->Read().body_case() != wire::ServerItem::BODY_NOT_SET) continue;
  const grpc::Status status = readers[0]->Finish();
  EXPECT_THAT(status.error_code(), testing::AnyOf(grpc::StatusCode::CANCELLED, grpc::StatusCode::RESOURCE_EXHAUSTED));
  for (int step = 0; step < 10; ++step) Step();
}

TEST_P(ReaderTest, ThoseWhoReleaseNothingAreCutOffAndTold) {
  RawStream keeper(cluster_, 2, AskForSegments(cluster_, 2, nullptr)->offer.token());
  ASSERT_TRUE(keeper.welcome().shared_memory());
  for (uint64_t pull = 1; pull <= 2; ++pull) {
    keeper.Write(PullItem(0, pull, 0));
    ASSERT_TRUE(AwaitWeights(keeper).pull().has_done());
    Step();
  }
  Step();
  while (keeper.Read().body_case() != wire::ServerItem::BODY_NOT_SET) continue;
  const grpc::Status status = keeper.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("holds version 1.0 of pull 1 since"));
  EXPECT_TRUE(Eventually([&] { return cluster_.pinned_versions() == 0; }));
}

TEST_P(ReaderTest, ReleasedVersionsAreNotHeld) {
  RawStream reader(cluster_, 2, AskForSegments(cluster_, 2, nullptr)->offer.token());
  for (uint64_t pull = 1; pull <= 10; ++pull) {
    reader.Write(PullItem(0, pull, 0));
    ASSERT_TRUE(AwaitWeights(reader).pull().has_done());
    reader.Write(ReleaseItem(0, pull));
    Step();
  }
  EXPECT_TRUE(Eventually([&] { return cluster_.pinned_versions() == 0; }));
}

// --- A large model, and channels as workers have them ------------------------------------------------------------

class LargeReaderTest : public testing::TestWithParam<Path> {
 protected:
  // 100 MB.
  static constexpr uint64_t kElements = kSanitized ? 8 << 20 : 25'000'000;
  // That a machine with other things to do may add to 3 T.
  static constexpr absl::Duration kSlack = absl::Seconds(10);

  static ClusterShape Shape(Path path) {
    ClusterShape shape;
    shape.path = path;
    shape.shards = {kElements};
    shape.change = [](job::Job& job) { job.mutable_wire()->set_chunk_bytes(1 << 20); };
    return shape;
  }
  // Asks for the weights and never reads.
  std::unique_ptr<RawStream> Stall() {
    const worker::ServerInfo& server = cluster_.map().servers[0];
    const std::string address = GetParam() == Path::kTcp ? server.address : rpc::UnixAddress(server.socket);
    const std::string token =
        GetParam() == Path::kSharedMemory ? AskForSegments(cluster_, 0, nullptr)->offer.token() : "";
    auto reader = std::make_unique<RawStream>(rpc::DataChannel(address), 0, token);
    EXPECT_EQ(reader->welcome().shared_memory(), GetParam() == Path::kSharedMemory);
    reader->Write(PullItem(0, 1, 0));
    return reader;
  }
  // Both workers, side by side.
  void Step(int count) {
    std::vector<std::thread> threads;
    for (const auto& trainer : trainers_) {
      threads.emplace_back([&, count] {
        for (int step = 0; step < count; ++step) {
          trainer->BeginStep(gradient_);
          EXPECT_LT(trainer->FinishStep().waited, cluster_.timeouts().notice() + kSlack);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    steps_ += 2 * count;
  }

  Cluster cluster_{Shape(GetParam())};
  std::vector<std::unique_ptr<TestTrainer>> trainers_;
  const std::vector<float> gradient_ = std::vector<float>(kElements, 2);
  int steps_ = 0;
};

TEST_P(LargeReaderTest, ThoseWhoStopReadingHoldNobody) {
  for (const uint32_t number : {1, 2}) {
    trainers_.push_back(std::make_unique<TestTrainer>(cluster_.ClientOptions(number), cluster_.map()));
    trainers_.back()->Seed(std::vector<float>(kElements, 100));
    trainers_.back()->Pull();
  }
  std::vector<std::unique_ptr<RawStream>> readers;
  // More than versions may be kept.
  for (int count = 0; count < 3; ++count) {
    readers.push_back(Stall());
    Step(2);
    EXPECT_LE(cluster_.pinned_versions(), 2);
  }
  for (const auto& trainer : trainers_) {
    trainer->Pull();
    EXPECT_TRUE(AllAre(100 - static_cast<float>(steps_), trainer->parameters()));
  }
  // The last has waited for the others to be gone. Workers that wait for each other end it, too, if the machine is
  // slow.
  AwaitWeights(*readers.back());
  while (readers[0]->Read().body_case() != wire::ServerItem::BODY_NOT_SET) continue;
  EXPECT_THAT(readers[0]->Finish().error_code(),
              testing::AnyOf(grpc::StatusCode::CANCELLED, grpc::StatusCode::RESOURCE_EXHAUSTED));
}

INSTANTIATE_TEST_SUITE_P(AllPaths, LargeReaderTest, testing::ValuesIn(kPaths),
                         [](const auto& info) { return Name(info.param); });

INSTANTIATE_TEST_SUITE_P(AllPaths, ReaderTest, testing::ValuesIn(kPaths),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace slackline::readers_test
