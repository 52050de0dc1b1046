// A real server process's service over loopback, against clients that speak plain protobuf: every kind of wrong
// message is refused with its status, changes nothing, and the next good push and pull work.
#include "ps/service/sequencer.h"

#include <limits>
#include <memory>
#include <random>
#include <string>

#include <grpcpp/generic/generic_stub.h>
#include "common/codec/block_decoder.h"
#include "common/codec/wire_encoding.h"
#include "common/rpc/channel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/stranger.h"
#include "tests/ps/exchange_fixture.h"

namespace slackline::ps::exchange_test {
namespace {

using testing::HasSubstr;

TEST_F(ExchangeTest, PushedGradientsComeBackAsWeights) {
  EXPECT_EQ(Weights(), Floats(2 * kElements, 10));
  for (uint64_t step = 1; step <= 20; ++step) ExpectGoodStep(*alice_, step, 10 - static_cast<float>(step));
}

TEST_F(ExchangeTest, CurrentWeightsAreNotSentAgain) {
  wire::WorkerFrame pull = TestWorker::PullFrame(1, 0);
  for (wire::ShardVersion& shard : *pull.mutable_items(0)->mutable_pull()->mutable_shards())
    shard.mutable_known()->set_lineage(1);
  alice_->Write(pull);
  for (int shard = 0; shard < 2; ++shard) EXPECT_TRUE(alice_->Read().pull_done().unchanged());
}

TEST_F(ExchangeTest, RepeatedPushOnANewStreamChangesNothing) {
  ExpectGoodStep(*alice_, 1, 9);
  TestWorker again(address_, 1, 101);
  const wire::Welcome welcome = again.SayHello();
  ASSERT_EQ(welcome.shards_size(), 2);
  EXPECT_EQ(welcome.shards(0).last_answered(), 1);
  EXPECT_EQ(alice_->Finish().error_code(), grpc::StatusCode::ABORTED);  // gave way
  for (const uint32_t shard : {0, 1}) again.SendPush(shard, 1, 1);
  for (int answers = 0; answers < 2; ++answers) EXPECT_EQ(again.Read().answer().version().number(), 1);
  EXPECT_EQ(again.Pull(1), Floats(2 * kElements, 9));
}

TEST_F(ExchangeTest, HalfAPushIsForgottenWithItsStream) {
  alice_->Write(TestWorker::PushFrame(0, 1, 0, Floats(kChunkElements, 5), false));
  TestWorker again(address_, 1, 101);
  ASSERT_EQ(again.SayHello().shards_size(), 2);
  EXPECT_EQ(Weights(), Floats(2 * kElements, 10));
  ExpectGoodStep(again, 1, 9);
}

TEST_F(ExchangeTest, WhoSendsWhatIsRefusedIsReadFromTheMoreSlowlyTheMoreItIs) {
  constexpr int kFrames = 20, kItems = 25;
  wire::WorkerFrame frame = TestWorker::PullFrame(1, 0);
  frame.mutable_items(0)->mutable_pull()->mutable_shards(0)->set_shard(99);
  for (int i = 1; i < kItems; ++i) *frame.add_items() = frame.items(0);
  TestWorker worker(address_, 2, 102);
  ASSERT_EQ(worker.SayHello().shards_size(), 2);
  const absl::Time begin = time_.Now();
  for (int i = 0; i < kFrames; ++i) worker.Write(frame);
  ExpectGoodStep(*alice_, 1, 9);
  for (int i = 0; i < kFrames * kItems; ++i) ASSERT_TRUE(worker.Read().has_refused());
  EXPECT_GE(time_.Now() - begin, (kFrames - 1) * kItems * WorkerStream::kPauseOfItem);
}

TEST_F(ExchangeTest, WrongFramesAreRefusedAndTheStreamGoesOn) {
  const std::string chunk = Floats(kChunkElements, 1);
  wire::WorkerFrame frame = TestWorker::PushFrame(0, 1, 0, chunk, false);
  frame.set_job(78);
  ExpectRefused(frame, grpc::StatusCode::FAILED_PRECONDITION, "job 78");
  frame = TestWorker::PushFrame(0, 2, 0, chunk, false);
  frame.set_generation(4);
  ExpectRefused(frame, grpc::StatusCode::FAILED_PRECONDITION, "generation 4; the server is at 5");
  frame.set_generation(6);
  ExpectRefused(frame, grpc::StatusCode::UNAVAILABLE, "still at 5");
  ExpectRefused(TestWorker::PushFrame(9, 1, 0, chunk, false), grpc::StatusCode::INVALID_ARGUMENT,
                "shard 9 is not here; server 1 has 2 shards, from 0 to 1");
  ExpectRefused(TestWorker::PushFrame(0, step_ + 1, 0, chunk, true), grpc::StatusCode::INVALID_ARGUMENT,
                "push has 1024 elements; the shard has 1500");
  ExpectRefused(TestWorker::PushFrame(0, step_ + 1, 0, "abc", true), grpc::StatusCode::INVALID_ARGUMENT,
                "payload has 3 bytes for 0 elements");
  ExpectRefused(TestWorker::PushFrame(0, step_ + 1, 0, Floats(kElements, 1), true), grpc::StatusCode::INVALID_ARGUMENT,
                "allowed are at most 4096");
  ExpectRefused(
      TestWorker::PushFrame(0, step_ + 1, 0, Floats(kChunkElements, std::numeric_limits<float>::quiet_NaN()), false),
      grpc::StatusCode::INVALID_ARGUMENT, "not finite");
  ExpectRefused(TestWorker::PushFrame(0, step_ + 1, 7, chunk, false), grpc::StatusCode::INVALID_ARGUMENT,
                "not begun at element 0");
  ExpectRefused(TestWorker::PushFrame(0, step_ + 3, 0, chunk, false), grpc::StatusCode::FAILED_PRECONDITION,
                "expected is");
  frame = TestWorker::PullFrame(99, 0);
  frame.mutable_items(0)->mutable_pull()->mutable_shards(1)->set_shard(4);
  ExpectRefused(frame, grpc::StatusCode::INVALID_ARGUMENT, "shard 4 is not here");
}

TEST_F(ExchangeTest, WorkerThatLeftTheSetIsShutOut) {
  ASSERT_TRUE(SetMembers(2, {2}).ok());
  const grpc::Status status = alice_->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  TestWorker again(address_, 1, 101);
  again.SayHello();
  EXPECT_EQ(again.Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(ExchangeTest, ControlCallsThatDoNotFitAreRefused) {
  EXPECT_TRUE(Install(InstallRequest()).ok());  // the same again
  wire::InstallShardsRequest other = InstallRequest();
  other.set_generation(6);
  EXPECT_EQ(Install(other).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  other = InstallRequest();
  other.set_server(2);
  EXPECT_THAT(Install(other).error_message(), HasSubstr("shards for server 2; this is server 1"));
  ASSERT_TRUE(SetMembers(3, {1, 2}).ok());
  EXPECT_EQ(SetMembers(2, {1}).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(SetMembers(4, {1}, 4).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  ExpectGoodStep(*alice_, 1, 9);
}

TEST_F(ExchangeTest, StopEndsStreamsAndTellsTheProcess) {
  wire::StopRequest request;
  wire::StopReply reply;
  request.set_job(1);
  EXPECT_EQ(control_->Stop(rpc::ContextWithTimeout(absl::Seconds(10)).get(), request, &reply).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  request.set_job(kJob);
  request.set_reason("the job is done");
  ASSERT_TRUE(control_->Stop(rpc::ContextWithTimeout(absl::Seconds(10)).get(), request, &reply).ok());
  EXPECT_EQ(stopped_.Wait(absl::Seconds(10)), "the job is done");
  EXPECT_EQ(alice_->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(Sequencer, TakesNoShardsBeforeItKnowsWhoItIsAndNoHelloBeforeShards) {
  Metrics metrics;
  SteadyTime time;
  SequencerOptions options;
  options.job = PlainJob();
  const auto first = *Sequencer::Start(options, metrics, time);
  const auto second = *Sequencer::Start(options, metrics, time);  // two live in one process
  const std::string address = "127.0.0.1:" + std::to_string(first->port());
  auto control = wire::ParameterServerControl::NewStub(rpc::ControlChannel(address));
  wire::InstallShardsReply reply;
  EXPECT_EQ(control->InstallShards(rpc::ContextWithTimeout(absl::Seconds(10)).get(), {}, &reply).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  TestWorker worker(address, 1, 101);
  worker.SayHello();
  EXPECT_EQ(worker.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(Sequencer, ConnectionThatSaysNothingIsCutOff) {
  Metrics metrics;
  SteadyTime time;
  SequencerOptions options;
  options.job = PlainJob();
  options.handshake = absl::Milliseconds(100);
  const auto exchange = *Sequencer::Start(options, metrics, time);
  const Stranger stranger(static_cast<uint16_t>(exchange->port()));
  ASSERT_TRUE(stranger.connected());
  EXPECT_TRUE(stranger.IsCutOff(absl::Minutes(1)));
}

TEST(Sequencer, AddressInUseIsAnError) {
  Metrics metrics;
  SteadyTime time;
  SequencerOptions options;
  options.job = PlainJob();
  const auto first = *Sequencer::Start(options, metrics, time);
  options.listen = "127.0.0.1:" + std::to_string(first->port());
  EXPECT_EQ(Sequencer::Start(options, metrics, time).status().code(), absl::StatusCode::kUnavailable);
}

// Shard 0 of many chunks, the last 500 elements averaged; shard 1 of a single small one.
class PullEncodingTest : public ExchangeTest {
 protected:
  static constexpr uint64_t kLarge = 20000, kSmall = 500, kAveraged = 500;

  void SetUp() override {
    wire::InstallShardsRequest request = InstallRequest();
    request.set_trained_elements(kSmall + kLarge - kAveraged);
    request.mutable_shards(0)->set_end(kSmall);
    request.mutable_shards(1)->set_begin(kSmall);
    request.mutable_shards(1)->set_end(kSmall + kLarge);
    ASSERT_TRUE(exchange_->SetIdentity({JobId(kJob), ServerId(1)}).ok());
    ASSERT_TRUE(Install(request).ok());
    ASSERT_TRUE(SetMembers(1, {1}).ok());
    for (float& weight : weights_) weight = 0.1f * static_cast<float>(&weight - weights_.data());
    alice_ = std::make_unique<TestWorker>(address_, 1, 101);
    alice_->hello().set_pull_encoding(wire::ENCODING_BF16);
    ASSERT_EQ(alice_->SayHello().shards_size(), 2);
    Seed(0, 0, kSmall);
    Seed(1, kSmall, kLarge);
  }

  void Seed(uint32_t shard, uint64_t begin, uint64_t elements) {
    for (uint64_t offset = 0; offset < elements; offset += kChunkElements) {
      const uint64_t size = std::min(kChunkElements, elements - offset);
      const auto first = weights_.begin() + static_cast<ptrdiff_t>(begin + offset);
      alice_->Write(TestWorker::PushFrame(shard, 0, offset, Floats({first, first + static_cast<ptrdiff_t>(size)}),
                                          offset + size == elements, /*seed=*/true));
    }
    ASSERT_EQ(alice_->Read().answer().outcome(), wire::OUTCOME_APPLIED);
  }

  std::vector<float> weights_ = std::vector<float>(kSmall + kLarge);
};

TEST_F(PullEncodingTest, Bf16IsSentWhereItWasAskedForButNotOfAveragedElements) {
  alice_->Write(TestWorker::PullFrame(1, 0));
  std::vector<float> got(weights_.size(), -1);
  uint64_t halves = 0;
  for (int done = 0; done < 2;) {
    const wire::ServerItem item = alice_->Read();
    ASSERT_TRUE(item.has_pull()) << item.DebugString();
    const wire::PullChunk& chunk = item.pull();
    const std::string bytes = alice_->payload();
    const absl::StatusOr<codec::Codec> codec = CodecFromWire(chunk.encoding());
    ASSERT_TRUE(codec.ok() && codec::IsEncodedLength(*codec, chunk.elements(), bytes.size())) << item.DebugString();
    if (codec->encoding == codec::Encoding::kBf16) halves += chunk.elements();
    const ByteSegments segments({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
    const absl::Span<float> part =
        absl::MakeSpan(got).subspan(chunk.shard() * kSmall + chunk.offset(), chunk.elements());
    const float* const values = codec::BlockDecoder(*codec, segments).Next(part);
    std::copy_n(values, part.size(), part.data());
    done += chunk.has_done() ? 1 : 0;
  }
  // The chunk in which the averaged elements begin is fp32.
  EXPECT_EQ(halves, kSmall + (kLarge - kAveraged) / kChunkElements * kChunkElements);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], weights_[i], weights_[i] / 256) << i;
  EXPECT_EQ(got.back(), weights_.back());
}

}  // namespace
}  // namespace slackline::ps::exchange_test
