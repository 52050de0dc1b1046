// Frames against plain protobuf: the same bytes, whatever way they are cut into slices.
#include "common/rpc/frame.h"

#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "parameter_server.pb.h"

namespace slackline::rpc::frame_test {
namespace {

wire::WorkerFrame SmallFields() {
  wire::WorkerFrame frame;
  frame.set_job(0x0123456789abcdef);
  frame.set_generation(7);
  wire::PushChunk& push = *frame.add_items()->mutable_push();
  push.set_shard(3);
  push.set_sequence(300);
  push.set_offset(262144);
  push.mutable_commit()->set_samples(64);
  push.mutable_commit()->set_loss(0.25);
  push.mutable_commit()->mutable_base()->set_lineage(1);
  return frame;
}

absl::Span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string Text(const ByteSegments& bytes) {
  std::string text;
  for (absl::Span<const std::byte> piece : bytes.segments()) {
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return text;
}

std::string Flat(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& slice : slices) text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return text;
}

// Cuts `text` at the given positions.
grpc::ByteBuffer Cut(const std::string& text, std::vector<size_t> cuts) {
  cuts.push_back(text.size());
  std::vector<grpc::Slice> slices;
  size_t begin = 0;
  for (size_t end : cuts) {
    slices.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

grpc::ByteBuffer BuildOne(const std::string& payload) {
  Attachment piece{Bytes(payload), nullptr};
  return Build(SmallFields(), absl::MakeSpan(&piece, 1));
}

std::string PlainProtobuf(const std::string& payload) {
  wire::WorkerFrame frame = SmallFields();
  frame.set_payload(payload);
  return frame.SerializeAsString();
}

void ExpectParses(const grpc::ByteBuffer& buffer, const std::string& payload) {
  wire::WorkerFrame header;
  const absl::StatusOr<Payload> parsed = Parse(buffer, header);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(header.SerializeAsString(), SmallFields().SerializeAsString());
  EXPECT_EQ(Text(parsed->segments()), payload);
}

void ExpectRefused(const std::string& text) {
  wire::WorkerFrame header;
  EXPECT_EQ(Parse(Cut(text, {}), header).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Frame, IsPlainProtobufOnTheWire) {
  for (const size_t size : {0, 1, 4, 127, 128, 20000}) {
    const std::string payload(size, 'x');
    EXPECT_EQ(Flat(BuildOne(payload)), PlainProtobuf(payload)) << size;
  }
}

TEST(Frame, PiecesOfThePayloadFollowEachOtherWhateverTheirSize) {
  const size_t sizes[] = {0, 5, kInlineBytes, kInlineBytes + 1, 3, 70000, 1};
  for (size_t first = 0; first < std::size(sizes); ++first) {
    std::vector<std::string> parts;
    for (size_t i = first; i < std::size(sizes); ++i) parts.emplace_back(sizes[i], static_cast<char>('a' + i));
    std::string whole;
    std::vector<Attachment> pieces;
    int released = 0;
    for (const std::string& part : parts) {
      whole += part;
      pieces.push_back({Bytes(part), [&] { ++released; }});
    }
    EXPECT_EQ(Flat(Build(SmallFields(), absl::MakeSpan(pieces))), PlainProtobuf(whole));
    EXPECT_EQ(released, pieces.size());
  }
}

TEST(Frame, PayloadIsDealtOutAcrossSlices) {
  const std::string payload = "0123456789abcdef";
  wire::WorkerFrame header;
  const auto parsed = Parse(Cut(PlainProtobuf(payload), {20, 40, 45, 47}), header);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  PayloadCutter cutter(*parsed);
  std::string all;
  for (const size_t size : {3, 0, 7, 1, 5}) {
    const Payload part = cutter.Next(size);
    EXPECT_EQ(part.size(), size);
    all += Text(part.segments());
  }
  EXPECT_EQ(all, payload);
  EXPECT_EQ(cutter.left(), 0);
}

TEST(Frame, PayloadIsSentFromItsOwnMemoryAndReleasedOnce) {
  const std::string payload(kInlineBytes + 1, 'p');
  int released = 0;
  {
    Attachment piece{Bytes(payload), [&] { ++released; }};
    const grpc::ByteBuffer buffer = Build(SmallFields(), absl::MakeSpan(&piece, 1));
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(buffer.Dump(&slices).ok());
    EXPECT_EQ(static_cast<const void*>(slices.back().begin()), payload.data());
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
}

TEST(Frame, MayBeCutAnywhere) {
  const std::string payload = "0123456789abcdef";
  const std::string text = PlainProtobuf(payload);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    ExpectParses(Cut(text, {cut}), payload);
    for (size_t second = cut; second <= text.size(); second += 3) ExpectParses(Cut(text, {cut, second}), payload);
  }
  std::vector<size_t> everywhere;
  for (size_t cut = 1; cut < text.size(); ++cut) everywhere.push_back(cut);
  ExpectParses(Cut(text, everywhere), payload);
}

TEST(Frame, PayloadOutlivesTheBuffer) {
  const std::string payload(10000, 'q');
  wire::WorkerFrame header;
  absl::StatusOr<Payload> parsed;
  {
    const grpc::ByteBuffer buffer = Cut(PlainProtobuf(payload), {5, 100, 5000});
    parsed = Parse(buffer, header);
  }
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(Text(parsed->segments()), payload);
}

TEST(Frame, SmallFieldsMayComeInAnyOrder) {
  wire::WorkerFrame first;
  *first.mutable_items() = SmallFields().items();
  wire::WorkerFrame second;
  second.set_generation(7);
  wire::WorkerFrame third;
  third.set_job(0x0123456789abcdef);
  const std::string text = first.SerializeAsString() + second.SerializeAsString() + third.SerializeAsString();
  ExpectParses(Cut(text + "\x7a\x03"
                          "abc",
                   {}),
               "abc");
}

TEST(Frame, UnknownFieldsAreLeftAlone) {
  const std::string unknown = "\xa2\x06\x02hi";  // field 100, two bytes
  wire::WorkerFrame header;
  const auto parsed = Parse(Cut(SmallFields().SerializeAsString() + unknown + "\x7a\x01z", {}), header);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(Text(parsed->segments()), "z");
}

TEST(Frame, WithoutPayloadOrBytesIsValid) {
  wire::WorkerFrame header;
  EXPECT_TRUE(Parse(grpc::ByteBuffer(), header).ok());
  ExpectParses(Cut(SmallFields().SerializeAsString(), {3}), "");
}

TEST(Frame, PayloadMustBeLastAndHaveItsLength) {
  const std::string small = SmallFields().SerializeAsString();
  ExpectRefused(small +
                "\x7a\x03"
                "ab");  // too short
  ExpectRefused(small +
                "\x7a\x03"
                "abcd");  // too long
  ExpectRefused(
      "\x7a\x02"
      "ab" +
      small);  // not last
  ExpectRefused(
      "\x7a\x02"
      "ab\x7a\x02"
      "cd");                                                              // twice
  ExpectRefused(small + "\x7a");                                          // no length
  ExpectRefused(small + "\x78\x05");                                      // not bytes
  ExpectRefused(small + "\x7a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");  // absurd length
}

TEST(Frame, WhatIsCutShortIsRefused) {
  const std::string text = PlainProtobuf("0123456789");
  const size_t job_and_generation = 11;
  for (size_t size = 1; size < text.size(); ++size) {
    // A frame that ends between two fields is a shorter frame, and valid.
    wire::WorkerFrame whole;
    if (whole.ParseFromString(text.substr(0, size))) continue;
    ExpectRefused(text.substr(0, size));
  }
  wire::WorkerFrame header;
  EXPECT_TRUE(Parse(Cut(text.substr(0, job_and_generation), {}), header).ok());
}

TEST(Frame, BeyondItsLimitsIsRefusedBeforeAnyOfItIsParsed) {
  const grpc::ByteBuffer buffer = BuildOne("abcd");
  const size_t header = SmallFields().ByteSizeLong();
  const absl::StatusOr<FoundFrame> found = FoundFrame::Find(buffer, {.fields_max = 3, .header_bytes_max = header});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->header_bytes(), header) << "the payload is not counted";
  wire::WorkerFrame read;
  EXPECT_EQ(Text(found->Parse(read)->segments()), "abcd");
  EXPECT_EQ(read.SerializeAsString(), SmallFields().SerializeAsString());

  EXPECT_EQ(FoundFrame::Find(buffer, {.fields_max = 2}).status().message(),
            "frame has more than 2 items and numbers; send it as several frames");
  EXPECT_EQ(FoundFrame::Find(buffer, {.header_bytes_max = header - 1}).status().message(),
            absl::StrCat("frame has ", header, " bytes or more beside its payload; allowed are ", header - 1,
                         ": send it as several frames"));
}

// Skipping one would read all that is in it.
TEST(Frame, GroupsAreRefused) {
  ExpectRefused("\xa3\x06\x08\x01\xa4\x06");  // field 100 with a number in it
  ExpectRefused("\xa4\x06");
}

TEST(Frame, PartOfThePayloadSaysHowMuchItHolds) {
  wire::WorkerFrame header;
  const std::string text = PlainProtobuf(std::string(1000, 'p'));
  const auto parsed = Parse(Cut(text, {}), header);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  PayloadCutter cutter(*parsed);
  EXPECT_EQ(cutter.Next(10).held_bytes(), text.size());
  EXPECT_EQ(Payload(Bytes(text), nullptr).held_bytes(), 0u);
}

// Whatever comes: no crash, and never more lenient than protobuf.
TEST(Frame, GarbageIsRefusedOrReadAsProtobufReadsIt) {
  const unsigned seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  std::mt19937 random(seed);
  const std::string good = PlainProtobuf("0123456789");
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    const int kind = static_cast<int>(random() % 3);
    if (kind == 0) {
      text.resize(random() % 64);
      for (char& byte : text) byte = static_cast<char>(random());
    } else {
      for (int change = 0; change < kind; ++change) text[random() % text.size()] = static_cast<char>(random());
    }
    wire::WorkerFrame header;
    const size_t cut = text.empty() ? 0 : random() % text.size();
    const absl::StatusOr<Payload> parsed = Parse(Cut(text, {cut}), header);
    if (!parsed.ok()) continue;
    wire::WorkerFrame plain;
    ASSERT_TRUE(plain.ParseFromString(text)) << "round " << round;
    EXPECT_EQ(Text(parsed->segments()), plain.payload()) << "round " << round;
  }
}

}  // namespace
}  // namespace slackline::rpc::frame_test
