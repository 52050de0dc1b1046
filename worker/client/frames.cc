#include "worker/client/frames.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/byte_segments.h"
#include "common/base/protocol_version.h"
#include "common/codec/wire_encoding.h"

namespace slackline::worker {
namespace {

void SetWire(const Version& version, wire::Version& out) {
  out.set_lineage(version.lineage.value());
  out.set_number(version.number);
}

void SetTrailer(const SubPush& push, wire::PushChunk& last) {
  if (push.trailer) *last.mutable_commit() = *push.trailer;
}

}  // namespace

void AppendPush(const SubPush& push, uint64_t chunk_bytes, std::vector<Outgoing>& items) {
  const uint64_t chunk_elements = std::max<uint64_t>(1, chunk_bytes / sizeof(float));
  uint64_t offset = 0;
  do {
    const auto piece = push.values.subspan(offset, chunk_elements);
    Outgoing& outgoing = items.emplace_back();
    outgoing.loans = push.loans;
    outgoing.payload = AsBytes(piece);
    outgoing.bytes = outgoing.payload.size();
    wire::PushChunk& chunk = *outgoing.item.mutable_push();
    chunk = push.first;
    chunk.set_offset(offset);
    chunk.set_elements(piece.size());
    chunk.set_encoding(wire::ENCODING_FP32);
    offset += piece.size();
    if (offset == push.values.size()) SetTrailer(push, chunk);
  } while (offset < push.values.size());
}

void AppendEncodedPush(const SubPush& push, PushEncoder& encoder, const std::shared_ptr<PushEncoder::Push>& encoded,
                       std::vector<Outgoing>& items, const TraceRow& trace) {
  for (size_t i = 0; i < encoded->chunks().size(); ++i) {
    const PushEncoder::Push::Chunk& piece = encoded->chunks()[i];
    Outgoing& outgoing = items.emplace_back();
    if (piece.run.lossy()) {
      const TraceName name = {"encode shard", static_cast<int64_t>(push.first.shard())};
      outgoing.encode = [&encoder, encoded, i, trace, name]() -> rpc::Attachment {
        const TraceSpan span(trace, name);
        const PushEncoder::Push::Chunk& made = encoder.Encode(*encoded, i);
        return {{made.bytes.get(), made.size}, [bytes = made.bytes] {}};
      };
    } else {
      outgoing.loans = push.loans;
      outgoing.payload = AsBytes(encoded->values(i));
    }
    wire::PushChunk& chunk = *outgoing.item.mutable_push();
    chunk = push.first;
    chunk.set_offset(piece.offset);
    chunk.set_elements(piece.elements);
    chunk.set_encoding(EncodingToWire(piece.run.codec.encoding));
  }
  SetTrailer(push, *items.back().item.mutable_push());
}

void AppendSharedPush(const SubPush& push, uint64_t offset, std::vector<Outgoing>& items) {
  Outgoing& outgoing = items.emplace_back();
  outgoing.bytes = push.values.size() * sizeof(float);
  wire::PushChunk& chunk = *outgoing.item.mutable_push();
  chunk = push.first;
  chunk.set_elements(push.values.size());
  chunk.set_encoding(wire::ENCODING_FP32);
  chunk.set_segment_offset(offset);
  SetTrailer(push, chunk);
}

void AppendCommit(const SubPush& push, std::vector<Outgoing>& items) {
  wire::PushChunk& chunk = *items.emplace_back().item.mutable_push();
  chunk = push.first;
  chunk.set_offset(push.values.size());
  chunk.set_encoding(wire::ENCODING_FP32);
  SetTrailer(push, chunk);
}

SubPush OpenPush(ShardId shard, Sequence sequence, absl::Span<const float> values) {
  SubPush push;
  push.values = values;
  push.first.set_shard(shard.value());
  push.first.set_sequence(sequence.value());
  return push;
}

SubPush GradientPush(const Session::Send& send, const PushInfo& info, absl::Span<const float> values) {
  SubPush push = OpenPush(send.shard, *send.push, values);
  wire::PushCommit& trailer = push.trailer.emplace();
  SetWire(send.base, *trailer.mutable_base());
  trailer.set_samples(info.samples);
  trailer.set_loss(info.loss);
  trailer.set_gradient_norm(info.gradient_norm);
  trailer.mutable_learning_rates()->Add(info.learning_rates.begin(), info.learning_rates.end());
  trailer.mutable_data()->set_range(info.range.value());
  trailer.mutable_data()->set_samples_done(info.range_samples_done);
  for (const PartPosition& part : info.parts) {
    wire::PartPosition& position = *trailer.mutable_data()->add_parts();
    position.set_lease(part.lease);
    position.set_records(part.records);
  }
  return push;
}

SubPush SeedPush(ShardId shard, absl::Span<const float> values) {
  SubPush push;
  push.values = values;
  push.first.set_shard(shard.value());
  push.first.set_seed(true);
  push.trailer.emplace();
  return push;
}

void AppendPulls(absl::Span<const Session::Send> sends, bool averaged, std::vector<Outgoing>& items) {
  wire::Pull* pull = nullptr;
  for (const Session::Send& send : sends) {
    if (!send.pull) continue;
    if (pull == nullptr || pull->id() != send.pull->value() || pull->clock() != send.clock.value()) {
      pull = items.emplace_back().item.mutable_pull();
      pull->set_id(send.pull->value());
      pull->set_clock(send.clock.value());
      pull->set_averaged(averaged);
    }
    wire::ShardVersion& shard = *pull->add_shards();
    shard.set_shard(send.shard.value());
    if (send.known) SetWire(*send.known, *shard.mutable_known());
  }
}

wire::Hello MakeHello(const ClientOptions& options, const Session& session, absl::Span<const ShardId> shards) {
  wire::Hello hello;
  SetProtocol(hello);
  hello.set_role(options.reader ? wire::ROLE_READER : wire::ROLE_WORKER);
  hello.set_worker(options.worker.value());
  hello.set_incarnation(options.incarnation.value());
  hello.set_first_clock(options.first_clock.value());
  hello.set_clock(session.clock().value());
  hello.set_pull_encoding(EncodingToWire(options.pull_encoding));
  hello.set_window(options.window);
  for (const ShardId id : shards) {
    wire::ShardClock& shard = *hello.add_shards();
    shard.set_shard(id.value());
    shard.set_last_answered(session.last_answered(id).value());
  }
  return hello;
}

absl::Status ToStatus(const wire::Refused& refused) {
  // Codes beyond those of gRPC, and OK, make no sense here.
  const bool known = refused.code() >= 1 && refused.code() <= 16;
  const auto code = known ? static_cast<absl::StatusCode>(refused.code()) : absl::StatusCode::kInternal;
  if (refused.sequence() == 0) return absl::Status(code, absl::StrCat("refused: ", refused.message()));
  std::string text = absl::StrCat("refused push ", refused.sequence(), " of shard ", refused.shard());
  if (refused.expected_sequence() != 0) absl::StrAppend(&text, ", it expects push ", refused.expected_sequence());
  return absl::Status(code, absl::StrCat(text, ": ", refused.message()));
}

}  // namespace slackline::worker
