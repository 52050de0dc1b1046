// The client with encoded pushes and pulls, against a server made of generated code.
#include <atomic>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "common/codec/encode.h"
#include "common/codec/wire_encoding.h"
#include "tests/worker/fake_server.h"
#include "worker/client/client.h"

namespace slackline::worker::encoded_client_test {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);
constexpr uint64_t kElements = 16'000, kBorder = 9000;
// Of the runs below.
constexpr uint64_t kPlainBegin = 8000, kPlainEnd = 8100;

// One server with two shards. Four groups of tensors: int8, a few fp32, top-k over the border of the shards, bf16; and
// averaged elements at the end.
class EncodedClientTest : public testing::Test {
 protected:
  EncodedClientTest() {
    map_.generation = Generation(1);
    map_.servers = {{.server = ServerId(1), .name = "ps-1", .address = server_.address()}};
    map_.shards = {{.shard = ShardId(0), .begin = 0, .end = kBorder, .server = ServerId(1)},
                   {.shard = ShardId(1), .begin = kBorder, .end = kElements, .server = ServerId(1)}};
    map_.elements = kElements;
    map_.trained_elements = kElements - 1000;
    info_.samples = 1;
    options_.job = JobId(42);
    options_.worker = WorkerId(3);
    options_.incarnation = Incarnation(9);
    options_.chunk_bytes = 4096;
    options_.same_host = SameHost::kTcp;
    options_.push_runs = {{kPlainBegin, {.encoding = codec::Encoding::kInt8}, true},
                          {kPlainEnd - kPlainBegin, {}, false},
                          {4900, {.encoding = codec::Encoding::kTopK, .fraction = 0.1}, true},
                          {2000, {.encoding = codec::Encoding::kBf16}, true}};
  }

  void ConnectAndPull() {
    auto client = Client::Create(options_, map_);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    ASSERT_EQ(client_->Pull(absl::MakeSpan(parameters_), kLong), absl::OkStatus());
  }

  // Steps with these values; those in flight stay there up to the window.
  void Step(const std::vector<float>& gradient) {
    std::vector<float>& memory = memory_[steps_++ % memory_.size()];
    memory = gradient;
    std::vector<float>& parameters = steps_ % options_.window == 0 ? parameters_ : other_parameters_;
    ASSERT_EQ(client_->BeginStep(memory, info_, absl::MakeSpan(parameters)), absl::OkStatus());
    if (client_->steps_in_flight() == options_.window) Finish();
  }
  void Finish() {
    const auto report = client_->FinishStep(kLong);
    ASSERT_TRUE(report.ok()) << report.status();
    discarded_ += report->shards_discarded;
    quarantined_ += report->shards_quarantined;
    pushed_bytes_ += report->pushed_bytes;
  }

  std::vector<float> Noise() {
    std::vector<float> values(kElements);
    for (float& value : values) value = distribution_(random_);
    return values;
  }

  // Pushes zeros until no residual is left: a code of a small residual leaves a much smaller one.
  void Drain() {
    for (int step = 0; step < 12; ++step) Step(std::vector<float>(kElements));
    while (client_->steps_in_flight() > 0) Finish();
  }

  // What the servers have applied.
  std::vector<float> Applied() const {
    std::vector<float> values = server_.weights(0);
    const std::vector<float> more = server_.weights(1);
    values.insert(values.end(), more.begin(), more.end());
    for (float& value : values) value = -value;
    return values;
  }

  FakeServer server_{{{0, kBorder}, {1, kElements - kBorder}}};
  ShardMap map_;
  ClientOptions options_;
  PushInfo info_;
  std::vector<float> parameters_ = std::vector<float>(kElements);
  std::vector<float> other_parameters_ = std::vector<float>(kElements);  // with two steps in flight
  std::array<std::vector<float>, 2> memory_;
  size_t steps_ = 0;
  uint32_t discarded_ = 0;
  uint32_t quarantined_ = 0;
  uint64_t pushed_bytes_ = 0;
  std::mt19937 random_{5};
  std::normal_distribution<float> distribution_;
  std::atomic<int> cuts_ = 0;
  std::unique_ptr<Client> client_;
};

TEST_F(EncodedClientTest, EveryGroupTravelsInItsEncoding) {
  ConnectAndPull();
  Step(Noise());
  std::map<int, uint64_t> elements, bytes;
  for (const uint32_t shard : {0, 1}) {
    const auto pushes = server_.pushes(shard);
    const auto payloads = server_.pushed_bytes(shard);
    ASSERT_EQ(pushes.size(), payloads.size());
    for (size_t i = 0; i < pushes.size(); ++i) {
      elements[pushes[i].push().encoding()] += pushes[i].push().elements();
      bytes[pushes[i].push().encoding()] += payloads[i].size();
      EXPECT_LE(payloads[i].size(), 4096);
      EXPECT_EQ(pushes[i].push().has_commit(), i + 1 == pushes.size());
    }
  }
  using testing::Pair;
  EXPECT_THAT(elements, testing::ElementsAre(Pair(wire::ENCODING_FP32, 1100), Pair(wire::ENCODING_BF16, 2000),
                                             Pair(wire::ENCODING_INT8, 8000), Pair(wire::ENCODING_TOPK, 4900)));
  EXPECT_EQ(bytes[wire::ENCODING_FP32], 4400);
  EXPECT_EQ(bytes[wire::ENCODING_BF16], 4000);
  EXPECT_EQ(bytes[wire::ENCODING_INT8], 8000 + 4 * 8);
  EXPECT_EQ(bytes[wire::ENCODING_TOPK], 490 * 8);
  EXPECT_EQ(pushed_bytes_, 4400 + 4000 + 8000 + 4 * 8 + 490 * 8);
}

class WindowTest : public EncodedClientTest, public testing::WithParamInterface<uint32_t> {};

TEST_P(WindowTest, WhatWasAppliedSumsToAllGradientsOnceTheResidualIsOut) {
  options_.window = GetParam();
  ConnectAndPull();
  std::vector<double> sum(kElements);
  for (int step = 0; step < 10; ++step) {
    const std::vector<float> gradient = Noise();
    for (size_t i = 0; i < kElements; ++i) sum[i] += gradient[i];
    Step(gradient);
  }
  Drain();
  const std::vector<float> applied = Applied();
  for (size_t i = 0; i < kElements; ++i) ASSERT_NEAR(applied[i], sum[i], 1e-4) << i;
}

INSTANTIATE_TEST_SUITE_P(InFlight, WindowTest, testing::Values(1, 2));

TEST_F(EncodedClientTest, DiscardedPushReturnsToTheResidual) {
  ConnectAndPull();
  const std::vector<float> first = Noise(), second = Noise();
  server_.DiscardNext(0);
  Step(first);
  EXPECT_EQ(discarded_, 1);
  Step(second);
  Drain();
  const std::vector<float> applied = Applied();
  for (size_t i = 0; i < kElements; ++i) {
    // What is not encoded has no residual: there the gradient is lost.
    const bool lost = i >= kPlainBegin && i < kPlainEnd;
    ASSERT_NEAR(applied[i], (lost ? 0 : first[i]) + second[i], 1e-4) << i;
  }
}

TEST_F(EncodedClientTest, OutlierDoesNotReturnToTheResidual) {
  ConnectAndPull();
  const std::vector<float> first = Noise(), second = Noise();
  server_.DiscardNext(0, wire::DISCARD_OUTLIER);
  Step(first);
  EXPECT_EQ(discarded_, 1);
  EXPECT_EQ(quarantined_, 1);
  Step(second);
  Drain();
  const std::vector<float> applied = Applied();
  // What the first one's code could not say is all that is left of it.
  for (size_t i = 0; i < kPlainBegin; ++i) ASSERT_NEAR(applied[i], second[i], 0.1) << i;
}

TEST_F(EncodedClientTest, RepeatedPushHasTheSameBytes) {
  ConnectAndPull();
  // The answer to shard 1 is lost, and the stream with it; shard 0 has not gone out whole, or not at all.
  server_.set_hook([this](const wire::WorkerItem& item, FakeServer::Stream&) {
    const bool cut = item.push().has_commit() && cuts_++ == 0;
    return FakeServer::Verdict{cut ? std::optional(grpc::Status(grpc::StatusCode::UNAVAILABLE, "cut")) : std::nullopt};
  });
  const std::vector<float> gradient = Noise();
  Step(gradient);
  const std::vector<std::string> bytes = server_.pushed_bytes(1);
  ASSERT_EQ(bytes.size() % 2, 0);
  const auto half = static_cast<ptrdiff_t>(bytes.size() / 2);
  EXPECT_EQ(std::vector(bytes.begin(), bytes.begin() + half), std::vector(bytes.begin() + half, bytes.end()));
  Drain();
  const std::vector<float> applied = Applied();
  for (size_t i = 0; i < kElements; ++i) ASSERT_NEAR(applied[i], gradient[i], 1e-4) << i;
}

TEST_F(EncodedClientTest, PushThatWasCutInTheMiddleIsEncodedOnce) {
  ConnectAndPull();
  server_.set_hook([this](const wire::WorkerItem& item, FakeServer::Stream&) {
    const bool cut = item.has_push() && item.push().shard() == 0 && item.push().offset() > 0 && cuts_++ == 0;
    return FakeServer::Verdict{cut ? std::optional(grpc::Status(grpc::StatusCode::UNAVAILABLE, "cut")) : std::nullopt};
  });
  const std::vector<float> gradient = Noise();
  Step(gradient);
  const std::vector<std::string> bytes = server_.pushed_bytes(0);
  ASSERT_GT(bytes.size(), 4);
  EXPECT_EQ(bytes[0], bytes[2]);
  EXPECT_EQ(bytes[1], bytes[3]);
  Drain();
  const std::vector<float> applied = Applied();
  for (size_t i = 0; i < kElements; ++i) ASSERT_NEAR(applied[i], gradient[i], 1e-4) << i;
}

TEST_F(EncodedClientTest, Bf16WeightsAreDecodedIntoTheParameters) {
  options_.pull_encoding = codec::Encoding::kBf16;
  server_.set_chunk_bytes(4096);
  ConnectAndPull();
  EXPECT_EQ(server_.items()[0].hello().pull_encoding(), wire::ENCODING_BF16);
  Step(Noise());
  const std::vector<float> weights = Applied();
  for (size_t i = 0; i < kElements; ++i) {
    ASSERT_NEAR(parameters_[i], -weights[i], std::abs(weights[i]) / 256) << i;
  }
  EXPECT_NE(parameters_[0], -weights[0]);
}

TEST_F(EncodedClientTest, EncodingOfPulledWeightsThatWasNotAskedForFailsThePull) {
  server_.set_hook([](const wire::WorkerItem& item, FakeServer::Stream& stream) {
    if (!item.has_pull()) return FakeServer::Verdict{};
    wire::ServerFrame frame;
    wire::ServerItem& answer = *frame.add_items();
    answer.mutable_pull()->set_id(item.pull().id());
    answer.mutable_pull()->set_elements(8);
    answer.mutable_pull()->set_encoding(wire::ENCODING_BF16);
    answer.set_payload_bytes(16);
    frame.set_payload(std::string(16, 'x'));
    stream.Write(frame);
    return FakeServer::Verdict{.end = std::nullopt, .swallow = true};
  });
  client_ = *Client::Create(options_, map_);
  const absl::Status status = client_->Pull(absl::MakeSpan(parameters_), kLong);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("a chunk as bf16, which was not asked for"));
}

}  // namespace
}  // namespace slackline::worker::encoded_client_test
