// Makes frames of workers for the fuzzers of servers, and takes the answers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/codec/codec.h"
#include "common/codec/wire_encoding.h"
#include "common/rpc/frame.h"
#include "histories.pb.h"
#include "ps/host/peer.h"

namespace slackline::fuzz {

// A fake peer of a server. It holds the weights that it gets until Read(), the last 8 pulls at most.
class Peer : public ps::Peer {
 public:
  void Send(const wire::ServerItem& item) override {
    SLACKLINE_CHECK(!ended_);
    if (item.has_refused()) {
      SLACKLINE_CHECK(!item.refused().message().empty());
      ++refused_;
    } else {
      ++others_;
    }
    if (!item.has_answer()) return;
    wire::PushAnswer& last = answers_[item.answer().shard()];
    if (item.answer().sequence() >= last.sequence()) last = item.answer();
  }
  void Serve(ps::PullReply reply) override {
    SLACKLINE_CHECK(!ended_);
    ++others_;
    if (reply.weights == nullptr) return;
    SLACKLINE_CHECK(reply.weights->version() == reply.version);
    replies_.push_back(std::move(reply));
    if (replies_.size() > kRepliesMax) replies_.erase(replies_.begin());
  }
  void Release(ShardId shard, PullId id) override {
    std::erase_if(replies_, [&](const ps::PullReply& reply) { return reply.shard == shard && reply.id == id; });
  }
  void End(const absl::Status&) override { ended_ = true; }

  void Read() { replies_.clear(); }
  void Begin() { refused_ = others_ = 0; }
  bool ended() const { return ended_; }
  // True if the server has refused something since Begin() and said nothing else.
  bool only_refused() const { return refused_ > 0 && others_ == 0; }
  // Returns the last answer of this shard; empty before the first.
  const wire::PushAnswer& answer(uint32_t shard) { return answers_[shard]; }

 private:
  static constexpr size_t kRepliesMax = 8;

  std::vector<ps::PullReply> replies_;
  std::map<uint32_t, wire::PushAnswer> answers_;
  size_t refused_ = 0, others_ = 0;
  bool ended_ = false;
};

// Longest payload, in bytes of fp32, that is made right.
inline constexpr uint64_t kMadeBytesMax = 64 << 10;

// Makes the payload and its lengths fit the items, and replaces tokens called "t" by `token`.
inline void MakeItemsRight(wire::WorkerFrame& frame, const std::string& token) {
  std::string made;
  for (wire::WorkerItem& item : *frame.mutable_items()) {
    if (item.hello().segment_token() == "t") item.mutable_hello()->set_segment_token(token);
    item.set_payload_bytes(0);
    if (!item.has_push() || item.push().has_segment_offset()) continue;
    const absl::StatusOr<codec::Codec> codec = CodecFromWire(item.push().encoding());
    if (!codec.ok() || item.push().elements() > kMadeBytesMax / sizeof(float)) continue;
    const uint64_t bytes = codec->encoding == codec::Encoding::kTopK
                               ? frame.payload().size() / 8 * 8
                               : codec::EncodedBytesMax(*codec, item.push().elements());
    item.set_payload_bytes(static_cast<uint32_t>(bytes));
    const std::string some = frame.payload().empty() ? std::string(1, '\0') : frame.payload();
    const size_t end = made.size() + bytes;
    while (made.size() < end) made.append(some, 0, end - made.size());
  }
  frame.set_payload(made);
}

// Repeats the first item `times` modulo 5000 more times; of a pull with shards, its first shard instead. Leaves frames
// with pushes alone, which would take too long.
inline void Lengthen(uint32_t times, wire::WorkerFrame& frame) {
  constexpr uint32_t kTimesMax = 5000;
  const bool pushes = std::any_of(frame.items().begin(), frame.items().end(),
                                  [](const wire::WorkerItem& item) { return item.has_push(); });
  if (pushes || frame.items().empty()) return;
  const wire::WorkerItem first = frame.items(0);
  for (uint32_t i = 0; i < times % kTimesMax; ++i) {
    if (first.pull().shards().empty()) {
      *frame.add_items() = first;
    } else {
      *frame.mutable_items(0)->mutable_pull()->add_shards() = first.pull().shards(0);
    }
  }
}

inline grpc::ByteBuffer Cut(const FrameEvent& event, const std::string& bytes) {
  std::vector<grpc::Slice> slices;
  absl::string_view left = bytes;
  for (const uint32_t cut : event.cuts()) {
    slices.emplace_back(left.data(), std::min<size_t>(cut, left.size()));
    left.remove_prefix(slices.back().size());
  }
  slices.emplace_back(left.data(), left.size());
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace slackline::fuzz
