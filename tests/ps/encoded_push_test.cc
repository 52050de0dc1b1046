// Pushes in every encoding, cut anywhere: those that a shard takes, and those that it must refuse.
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/codec/encode.h"
#include "common/codec/wire_encoding.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/host/shard_host.h"
#include "ps/shard/push_norm.h"
#include "tests/ps/service_fixture.h"

namespace slackline::ps::encoded_push_test {
namespace {

constexpr uint64_t kElements = 9000;
const Sender kAlice{WorkerId(1), Incarnation(11)};
const codec::Codec kBf16{.encoding = codec::Encoding::kBf16};
const codec::Codec kInt8{.encoding = codec::Encoding::kInt8};
const codec::Codec kTopK{.encoding = codec::Encoding::kTopK, .fraction = 0.25};

std::vector<codec::Codec> AllCodecs() {
  std::vector<codec::Codec> all;
  for (const char* name : {"fp32", "bf16", "fp16", "int8", "topk:0.25"}) all.push_back(codec::ParseCodec(name).value());
  return all;
}

std::string Encoded(const codec::Codec& codec, absl::Span<const float> values) {
  std::string bytes(codec::EncodedBytesMax(codec, values.size()), '\0');
  bytes.resize(codec::Encode(codec, values, {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()}));
  return bytes;
}

std::vector<float> Decoded(const codec::Codec& codec, const std::string& bytes, uint64_t elements) {
  std::vector<float> values(elements);
  codec::ReturnToResidual(codec, {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()},
                          absl::MakeSpan(values));
  return values;
}

std::string Pair(uint32_t index, float value) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &index, 4);
  std::memcpy(bytes.data() + 4, &value, 4);
  return bytes;
}

class EncodedPushTest : public testing::Test {
 protected:
  EncodedPushTest() {
    ShardConfig config;
    config.extent = {.begin = 0, .end = kElements, .trained = kElements};
    config.optimizer.lr = 1;
    config.engine.mode = Mode::kAsync;
    config.chunk_elements = 1024;
    config.chunk_bytes_max = 2 * kElements * sizeof(float);
    host_ = std::make_unique<ShardHost>(config, budget_, service_metrics_, time_);
    EXPECT_TRUE(host_->SetMembers({Epoch(1), {{kAlice, "alice"}}}).ok());
    EXPECT_TRUE(host_->Hello(alice_, {kAlice, Clock64(), Sequence()}).ok());
    wire::PushChunk seed;
    seed.set_seed(true);
    Give(seed, {}, Floats(kElements, 0), kElements, true);
    EXPECT_EQ(peer_.Take().answer().outcome(), wire::OUTCOME_APPLIED);
    std::mt19937 random(17);
    std::normal_distribution<float> gradient;
    for (float& value : gradient_) value = gradient(random);
  }

  void Give(wire::PushChunk chunk, const codec::Codec& codec, const std::string& bytes, uint64_t elements, bool last) {
    chunk.set_encoding(EncodingToWire(codec.encoding));
    Give(chunk, bytes, elements, last);
  }
  void Give(wire::PushChunk chunk, const std::string& bytes, uint64_t elements, bool last) {
    chunk.set_elements(elements);
    if (last) {
      chunk.mutable_commit()->mutable_base()->set_lineage(1);
      chunk.mutable_commit()->set_samples(1);
    }
    host_->Push(alice_, chunk, AsPayload(bytes));
  }

  std::vector<float> Weights() {
    RecordingPeer reader;
    host_->Pull({&reader, {}, true, 1}, {{}, PullId(1), Clock64()}, std::nullopt);
    std::vector<float> values(kElements);
    reader.replies.back().weights->view().CopyTo(absl::MakeSpan(values));
    return values;
  }

  // The chunk as the beginning of a push is refused, and so is the rest; nothing changes.
  void ExpectRefused(const wire::PushChunk& chunk, const std::string& bytes, uint64_t elements,
                     const std::string& words) {
    const std::vector<float> before = Weights();
    Give(chunk, bytes, elements, elements == kElements);
    ASSERT_EQ(peer_.items.size(), 1) << words;
    const wire::ServerItem item = peer_.Take();
    EXPECT_EQ(item.refused().code(), static_cast<uint32_t>(absl::StatusCode::kInvalidArgument)) << item.DebugString();
    EXPECT_THAT(item.refused().message(), testing::HasSubstr(words));
    EXPECT_EQ(Weights(), before);
    EXPECT_EQ(budget_.used(), 0);
  }
  void ExpectRefused(const codec::Codec& codec, const std::string& bytes, uint64_t elements, const std::string& words) {
    wire::PushChunk chunk;
    chunk.set_sequence(1);
    chunk.set_encoding(EncodingToWire(codec.encoding));
    ExpectRefused(chunk, bytes, elements, words);
  }

  Metrics metrics_;
  ServiceMetrics service_metrics_{metrics_};
  ManualTime time_;
  StagingBudget budget_{2 * kElements * sizeof(float)};
  RecordingPeer peer_;
  Caller alice_{&peer_, kAlice, false, 1};
  std::unique_ptr<ShardHost> host_;
  std::vector<float> gradient_ = std::vector<float>(kElements);
};

// Chunks of random length, each in a random one of the encodings.
class RandomCutsTest : public EncodedPushTest, public testing::WithParamInterface<const char*> {};

TEST_P(RandomCutsTest, StepIsThatOfTheDecodedValues) {
  const std::string name = GetParam();
  const std::vector<codec::Codec> codecs =
      name == "mixed" ? AllCodecs() : std::vector<codec::Codec>{codec::ParseCodec(name).value()};
  std::mt19937 random(23);
  std::vector<float> expected(kElements);
  for (uint64_t sequence = 1; sequence <= 20; ++sequence) {
    // Of about 1, 4, 16, ... elements.
    const uint64_t longest = uint64_t{1} << (2 * (sequence % 7));
    uint64_t offset = 0;
    wire::PushChunk chunk;
    chunk.set_sequence(sequence);
    for (int count = 0; offset < kElements; ++count) {
      // The last takes all once there are many.
      const uint64_t most = count < 1000 ? longest : kElements;
      const uint64_t elements = std::min<uint64_t>(kElements - offset, most == kElements ? most : 1 + random() % most);
      const codec::Codec& codec = codecs[random() % codecs.size()];
      const std::string bytes = Encoded(codec, absl::MakeSpan(gradient_).subspan(offset, elements));
      const std::vector<float> values = Decoded(codec, bytes, elements);
      for (uint64_t i = 0; i < elements; ++i) expected[offset + i] -= values[i];
      chunk.set_offset(offset);
      offset += elements;
      Give(chunk, codec, bytes, elements, offset == kElements);
    }
    const wire::ServerItem item = peer_.Take();
    ASSERT_EQ(item.answer().outcome(), wire::OUTCOME_APPLIED) << item.DebugString();
    ASSERT_EQ(Weights(), expected) << "chunks of up to " << longest << " elements";
  }
}

INSTANTIATE_TEST_SUITE_P(Encodings, RandomCutsTest,
                         testing::Values("fp32", "bf16", "fp16", "int8", "topk:0.25", "mixed"),
                         [](const auto& info) { return std::string(info.param).substr(0, 4); });

TEST_F(EncodedPushTest, LengthsThatTheElementsCannotHaveAreRefused) {
  for (const codec::Codec& codec : AllCodecs()) {
    const std::string right = Encoded(codec, gradient_);
    ExpectRefused(codec, right + '\0', kElements, "elements as ");
    ExpectRefused(codec, right.substr(1), kElements, "elements as ");
    ExpectRefused(codec, right, 1, "for 1 elements as ");
  }
  ExpectRefused(kBf16, Encoded(kBf16, gradient_), kElements + 1, "chunk has 9001 elements; the shard has 9000");
  // Fewer pairs are no mistake.
  wire::PushChunk chunk;
  chunk.set_sequence(1);
  Give(chunk, kTopK, Pair(8999, 2), kElements, true);
  EXPECT_EQ(Weights().back(), -2);
}

TEST_F(EncodedPushTest, ValuesThatAreNotFiniteAreRefused) {
  std::vector<float> bad = gradient_;
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    bad[kElements / 2] = value;
    for (const codec::Codec& codec : AllCodecs()) {
      const std::string words = codec.encoding == codec::Encoding::kInt8 ? "int8 block 4" : "not finite";
      ExpectRefused(codec, Encoded(codec, bad), kElements, words);
    }
  }
}

TEST_F(EncodedPushTest, PairsOutOfOrderOrBeyondTheirChunkAreRefused) {
  ExpectRefused(kTopK, Pair(7, 1) + Pair(6, 1), kElements, "index 6 comes after 7");
  ExpectRefused(kTopK, Pair(7, 1) + Pair(7, 1), kElements, "index 7 comes after 7");
  // In the shard, but not in the chunk.
  ExpectRefused(kTopK, Pair(2000, 1), 2000, "index is 2000");
}

TEST_F(EncodedPushTest, ScalesThatCannotBeAreRefused) {
  std::string bytes = Encoded(kInt8, gradient_);
  for (const float scale : {-1.0f, std::numeric_limits<float>::max()}) {
    std::memcpy(bytes.data() + codec::kInt8BlockBytes, &scale, sizeof(scale));
    ExpectRefused(kInt8, bytes, kElements, "the scale of int8 block 1");
  }
}

TEST(WireEncoding, EachHasAnEntryWithItsNumber) {
  const google::protobuf::EnumDescriptor& numbers = *wire::Encoding_descriptor();
  EXPECT_EQ(codec::AllEncodings().size() + 1, static_cast<size_t>(numbers.value_count())) << "and one for none";
  for (const codec::EncodingFacts& facts : codec::AllEncodings()) {
    const wire::Encoding number = EncodingToWire(facts.encoding);
    EXPECT_EQ(wire::Encoding_Name(number), absl::StrCat("ENCODING_", absl::AsciiStrToUpper(facts.name)));
    EXPECT_EQ(CodecFromWire(number)->encoding, facts.encoding);
  }
}

TEST_F(EncodedPushTest, UnknownEncodingsAndEncodedSeedsAreRefused) {
  wire::PushChunk chunk;
  chunk.set_sequence(1);
  chunk.set_encoding(static_cast<wire::Encoding>(9));
  ExpectRefused(chunk, Floats(gradient_), kElements, "encoding is 9; allowed are 1 to 5");
  chunk.set_encoding(wire::ENCODING_BF16);
  chunk.set_segment_offset(0);
  ExpectRefused(chunk, Encoded(kBf16, gradient_), kElements, "shared memory as bf16; allowed is fp32");
}

TEST_F(EncodedPushTest, EncodedSeedIsRefused) {
  ShardConfig config = host_->config();
  ShardHost fresh(config, budget_, service_metrics_, time_);
  EXPECT_TRUE(fresh.SetMembers({Epoch(1), {{kAlice, "alice"}}}).ok());
  wire::PushChunk seed;
  seed.set_seed(true);
  seed.set_encoding(wire::ENCODING_BF16);
  seed.set_elements(kElements);
  seed.mutable_commit();
  fresh.Push(alice_, seed, AsPayload(Encoded(kBf16, gradient_)));
  EXPECT_THAT(peer_.Take().refused().message(), testing::HasSubstr("initial weights as bf16; allowed is fp32"));
  EXPECT_FALSE(fresh.seeded());
}

TEST_F(EncodedPushTest, InitialWeightsInSharedMemoryAreCopiedBeforeTheyAreChecked) {
  ShardHost fresh(host_->config(), budget_, service_metrics_, time_);
  EXPECT_TRUE(fresh.SetMembers({Epoch(1), {{kAlice, "alice"}}}).ok());
  std::vector<float> segment(kElements, 2);
  wire::PushChunk seed;
  seed.set_seed(true);
  seed.set_segment_offset(0);
  const auto push = [&](uint64_t begin, uint64_t elements) {
    seed.set_offset(begin);
    seed.set_elements(elements);
    const absl::Span<const float> values = absl::MakeConstSpan(segment).subspan(begin, elements);
    fresh.Push(alice_, seed, rpc::Payload({reinterpret_cast<const std::byte*>(values.data()), 4 * elements}, nullptr));
  };
  push(0, 5000);
  segment[0] = std::numeric_limits<float>::quiet_NaN();
  seed.mutable_commit();
  push(5000, kElements - 5000);
  EXPECT_EQ(peer_.Take().answer().outcome(), wire::OUTCOME_APPLIED);
  EXPECT_EQ(fresh.Snapshot().numbers.weights.chunk(0)[0], 2);
}

TEST_F(EncodedPushTest, NormIsThatOfWhatIsTrainedInEveryEncoding) {
  for (const codec::Codec& codec : AllCodecs()) {
    std::vector<std::string> bytes;
    std::vector<EncodedPiece> pieces;
    std::vector<float> decoded;
    for (uint64_t begin = 0; begin < kElements; begin += 4000) {
      const uint64_t elements = std::min<uint64_t>(4000, kElements - begin);
      bytes.push_back(Encoded(codec, absl::MakeConstSpan(gradient_).subspan(begin, elements)));
      pieces.push_back({elements, codec,
                        ByteSegments({reinterpret_cast<const std::byte*>(bytes.back().data()), bytes.back().size()})});
      const std::vector<float> values = Decoded(codec, bytes.back(), elements);
      decoded.insert(decoded.end(), values.begin(), values.end());
    }
    for (const uint64_t trained : {uint64_t{0}, uint64_t{3}, uint64_t{4000}, uint64_t{8500}, kElements}) {
      double sum = 0;
      for (uint64_t i = 0; i < trained; ++i) sum += double{decoded[i]} * decoded[i];
      EXPECT_NEAR(PushNorm(pieces, trained), std::sqrt(sum), 1e-9 * std::sqrt(sum))
          << codec::ToString(codec) << " " << trained;
    }
  }
}

TEST_F(EncodedPushTest, ChunkOfNoElementsMayCommitAndDoNothingElse) {
  ExpectRefused(kBf16, "", 0, "chunk has 0 elements and is not the last");
  wire::PushChunk chunk;
  chunk.set_sequence(1);
  const std::string bytes = Encoded(kBf16, gradient_);
  Give(chunk, kBf16, bytes, kElements, false);
  chunk.set_offset(kElements);
  Give(chunk, "", 0, true);
  EXPECT_EQ(peer_.Take().answer().outcome(), wire::OUTCOME_APPLIED);
  EXPECT_EQ(Weights()[3], -Decoded(kBf16, bytes, kElements)[3]);
}

TEST_F(EncodedPushTest, SmallChunksAreBounded) {
  wire::PushChunk chunk;
  chunk.set_sequence(1);
  for (uint64_t offset = 0; offset <= StagedPush::kSmallChunksMax; ++offset) {
    ASSERT_TRUE(peer_.items.empty()) << offset;
    chunk.set_offset(offset);
    Give(chunk, Floats(1, 1), 1, false);
  }
  EXPECT_THAT(peer_.Take().refused().message(), testing::HasSubstr("as 4096 before it had fewer than 1024"));
  EXPECT_EQ(budget_.used(), 0);
}

// Else a push of a few bytes a frame would keep all of its frames.
TEST(StagedPush, KeepsNoFrameOfWhichItHasASmallPart) {
  constexpr size_t kBytes = StagedPush::kHeldBytesMin, kElementsOf = kBytes / sizeof(float);
  for (const size_t parts : {size_t{1}, StagedPush::kHeldPartsMax / 2, 4 * StagedPush::kHeldPartsMax}) {
    const rpc::Payload frame = AsPayload(std::string(parts * kBytes, '\0'));
    rpc::PayloadCutter cutter(frame);
    StagedPush staged;
    ASSERT_TRUE(staged.Add({.elements = kElementsOf, .last = true}, {kElementsOf, kBytes}, cutter.Next(kBytes)).ok());
    const bool there = staged.pieces()[0].bytes.segments()[0].data() == frame.segments().segments()[0].data();
    EXPECT_EQ(there, parts <= StagedPush::kHeldPartsMax) << parts;
  }
}

}  // namespace
}  // namespace slackline::ps::encoded_push_test
