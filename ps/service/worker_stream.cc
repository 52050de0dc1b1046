#include "ps/service/worker_stream.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/byte_segments.h"
#include "common/codec/encode.h"
#include "common/codec/wire_encoding.h"
#include "common/rpc/channel.h"

namespace slackline::ps {
namespace {

// Small pulls leave together up to so many bytes.
constexpr size_t kGatherBytes = 64 << 10;
constexpr int kFrameItemsMax = 256;

// Memory for the bytes of one chunk, and what is written to it.
class EncodedChunk {
 public:
  // Requires: a codec whose chunks can be put side by side.
  EncodedChunk(const codec::Codec& codec, uint64_t elements)
      : codec_(codec),
        size_(codec::EncodedBytesMax(codec, elements)),
        bytes_(std::make_shared_for_overwrite<std::byte[]>(size_)) {}

  void Add(absl::Span<const float> values) {
    used_ += codec::Encode(codec_, values, {bytes_.get() + used_, size_ - used_});
  }

  // The bytes, and says in `chunk` what they are.
  rpc::Attachment Take(wire::PullChunk& chunk) {
    chunk.set_encoding(EncodingToWire(codec_.encoding));
    return {{bytes_.get(), used_}, [bytes = std::move(bytes_)] {}};
  }

 private:
  const codec::Codec codec_;
  const size_t size_;
  size_t used_ = 0;
  std::shared_ptr<std::byte[]> bytes_;  // gRPC reads it beyond this object's life
};

}  // namespace

WorkerStream::WorkerStream(StreamOwner& owner, ShardTable& table, ServiceMetrics& metrics)
    : owner_(owner), table_(table), metrics_(metrics), call_(&context_) {}

void WorkerStream::Request(ExchangeService& service, grpc::ServerCompletionQueue* queue) {
  queue_ = queue;
  service.RequestExchange(&context_, &call_, queue, queue, &requested_);
}

// --- What the shards say ----------------------------------------------------------------------------------------

void WorkerStream::Send(const wire::ServerItem& item) {
  if (end_.has_value()) return;
  // Notices to somebody who does not read would pile up.
  if (item.has_waiting() && small_.size() >= kQueuedItemsMax) return;
  if (item.has_refused()) ++wasted_;
  small_.push_back(item);
  // What this frame of the worker's leads to leaves together: OnRead() pumps.
  if (!receiving_) Pump();
}

void WorkerStream::Serve(PullReply reply) {
  if (end_.has_value()) return;
  Sending next{std::move(reply), 0, false, {}, false};
  if (next.reply.weights != nullptr && next.reply.elements <= rpc::kInlineBytes / sizeof(float)) {
    next.copied.resize(next.reply.elements);
    next.reply.weights->view().First(next.reply.elements).CopyTo(absl::MakeSpan(next.copied));
    next.reply.weights = nullptr;
    next.all_frozen = next.copied.empty();
  }
  uint32_t queued = 0;
  Sending* last = nullptr;
  for (Sending& sending : pulls_) {
    if (sending.next > 0 || sending.reply.shard != next.reply.shard) continue;
    ++queued;
    last = &sending;
  }
  if (queued >= next.reply.queued_max) {
    *last = std::move(next);
    ++wasted_;
  } else {
    pulls_.push_back(std::move(next));
  }
  if (!receiving_) Pump();
}

void WorkerStream::Release(ShardId shard, PullId id) {
  std::erase_if(lent_, [&](const Lent& lent) { return lent.shard == shard && lent.id == id; });
}

void WorkerStream::Lend(const PullReply& reply) {
  const auto same_shard = [&](const Lent& lent) { return lent.shard == reply.shard; };
  lent_.push_back({reply.shard, reply.id, reply.weights});
  if (std::count_if(lent_.begin(), lent_.end(), same_shard) <= reply.queued_max) return;
  lent_.erase(std::find_if(lent_.begin(), lent_.end(), same_shard));
}

void WorkerStream::End(const absl::Status& status) {
  if (end_.has_value()) return;
  end_ = status;
  table_.Closed(*this);
  small_.clear();
  pulls_.clear();
  lent_.clear();
  writing_from_.clear();
  found_.reset();
  if (paused_) pause_.Cancel();
  FinishWhenQuiet();
}

absl::Status WorkerStream::Identify(const security::Guard& guard) {
  absl::StatusOr<security::AdmittedCaller> caller = guard.Admit(context_, "slackline.wire.ParameterServer.Exchange");
  if (caller.ok()) caller_ = *std::move(caller);
  return caller.status();
}

absl::Status WorkerStream::MayTrain() const { return caller_.MustBe(security::Role::kWorker, "push"); }

void WorkerStream::Tick() {
  // A call cannot be finished before its write is over: a slow client has one tick for that. The status has more, but
  // may never leave if the client reads nothing.
  constexpr int kTicks = 1, kTicksToFinish = 16;
  if (!end_.has_value()) {
    if (absl::Status counts = caller_.CheckRevoked(); !counts.ok()) return End(counts);
  }
  if (end_.has_value() && ++ticks_since_end_ > (finishing_ ? kTicksToFinish : kTicks)) context_.TryCancel();
}

// --- Events -----------------------------------------------------------------------------------------------------

void WorkerStream::OnRequested(bool ok) {
  if (!ok) {  // the server is shutting down
    owner_.Finished(*this);
    return;
  }
  const absl::Status status = owner_.Accepted(*this);
  if (!status.ok()) return End(status);
  Pump();
}

void WorkerStream::OnRead(bool ok) {
  reading_ = false;
  if (end_.has_value()) return FinishWhenQuiet();
  if (!ok) return End(absl::OkStatus());  // the client has closed its side, or is gone
  metrics_.bytes_received.Add(static_cast<double>(incoming_.Length()));
  absl::StatusOr<rpc::FoundFrame> found = rpc::FoundFrame::Find(incoming_, table_.frame_limits());
  incoming_.Clear();
  if (!found.ok()) return End(found.status());
  found_ = *std::move(found);
  const size_t header_bytes = found_->header_bytes();
  if (header_bytes <= table_.ordinary_header_bytes()) return Take();
  const absl::Duration wait = owner_.WaitForTurn(static_cast<int64_t>(header_bytes) * kParseOfByte);
  wait > absl::ZeroDuration() ? Pause(wait) : Take();
}

void WorkerStream::Take() {
  const rpc::FoundFrame found = *std::exchange(found_, std::nullopt);
  std::optional<absl::Status> end;
  size_t bytes = found.header_bytes();
  wasted_ = 0;
  if (absl::StatusOr<rpc::Payload> payload = found.Parse(frame_); payload.ok()) {
    bytes += payload->size();
    receiving_ = true;
    end = table_.Receive(*this, frame_, *payload);
    receiving_ = false;
  } else {
    end = payload.status();
  }
  frame_.Clear();
  // A cleared message keeps room for as many items as it had.
  if (found.header_bytes() > table_.ordinary_header_bytes()) frame_ = wire::WorkerFrame();
  if (end.has_value()) return End(*end);
  heard = true;
  if (wasted_ > 0) {
    Pause(std::min(kPauseMax, static_cast<int64_t>(wasted_) * kPauseOfItem +
                                  static_cast<int64_t>(bytes) * kPauseOfByte +
                                  static_cast<int64_t>(found.header_bytes()) * kPauseOfHeaderByte));
  }
  Pump();
}

void WorkerStream::Pause(absl::Duration pause) {
  paused_ = true;
  pause_.Set(queue_, std::chrono::system_clock::now() + absl::ToChronoMicroseconds(pause),
             static_cast<Event*>(&resumed_));
}

void WorkerStream::OnResumed(bool /*ok*/) {
  paused_ = false;
  if (end_.has_value()) return FinishWhenQuiet();
  if (found_.has_value()) return Take();
  Pump();
}

void WorkerStream::OnWritten(bool ok) {
  writing_ = false;
  writing_from_.clear();
  if (end_.has_value()) return FinishWhenQuiet();
  if (!ok) return End(absl::UnavailableError("the client is gone"));
  Pump();
}

void WorkerStream::OnFinished(bool /*ok*/) {
  done_ = true;
  FinishWhenQuiet();
}

// A call may be finished while a read is pending, not while a write is; it may be deleted when nothing is.
void WorkerStream::FinishWhenQuiet() {
  if (!finishing_ && !writing_) {
    finishing_ = true;
    call_.Finish(rpc::ToGrpc(*end_), &finished_);
  }
  if (done_ && !reading_ && !paused_) owner_.Finished(*this);
}

// --- Queues -----------------------------------------------------------------------------------------------------

void WorkerStream::Pump() {
  if (end_.has_value()) return;
  if (!reading_ && !paused_ && small_.size() < kQueuedItemsMax) {
    reading_ = true;
    call_.Read(&incoming_, &read_);
  }
  if (!writing_ && (!small_.empty() || !pulls_.empty())) Write(NextFrame());
}

void WorkerStream::Write(const grpc::ByteBuffer& frame) {
  writing_ = true;
  metrics_.bytes_sent.Add(static_cast<double>(frame.Length()));
  // A frame that another follows at once need not go out by itself.
  grpc::WriteOptions options;
  if (!small_.empty() || !pulls_.empty()) options.set_buffer_hint();
  call_.Write(frame, options, &written_);
}

grpc::ByteBuffer WorkerStream::NextFrame() {
  wire::ServerFrame frame;
  std::vector<rpc::Attachment> pieces;
  while (!small_.empty() && frame.items_size() < kFrameItemsMax) {
    frame.add_items()->Swap(&small_.front());
    small_.pop_front();
  }
  size_t bytes = 0;
  while (!pulls_.empty() && bytes < kGatherBytes && frame.items_size() < kFrameItemsMax) {
    wire::ServerItem& item = *frame.add_items();
    pieces.push_back(NextPullItem(item));
    item.set_payload_bytes(static_cast<uint32_t>(pieces.back().bytes.size()));
    bytes += pieces.back().bytes.size();
  }
  return rpc::Build(frame, absl::MakeSpan(pieces));
}

rpc::Attachment WorkerStream::NextPullItem(wire::ServerItem& item) {
  Sending& sending = pulls_.front();
  const PullReply& reply = sending.reply;
  if (!sending.copied.empty()) {
    rpc::Attachment piece = CopiedItem(sending, item);
    pulls_.pop_front();
    return piece;
  }
  if (reply.weights == nullptr) {
    Complete(reply, /*unchanged=*/!sending.all_frozen, *item.mutable_pull_done());
    pulls_.pop_front();
    return {};
  }
  const SliceView view = reply.weights->view().First(reply.elements);
  const bool encodes = Encodes(reply, {sending.next * view.chunk_elements(), view.chunk(sending.next).size()});
  rpc::Attachment piece = encodes ? EncodedItem(sending, item) : PlainItem(sending, item);
  if (sending.next == view.chunks()) {
    if (sending.lent) Lend(reply);
    Complete(reply, /*unchanged=*/false, *item.mutable_pull()->mutable_done());
    pulls_.pop_front();
  }
  return piece;
}

bool WorkerStream::Encodes(const PullReply& reply, const Extent& extent) {
  return reply.encoding != codec::Encoding::kFp32 && !reply.shared_memory &&
         extent.offset + extent.elements <= reply.encoded_elements;
}

rpc::Attachment WorkerStream::CopiedItem(Sending& sending, wire::ServerItem& item) {
  const Extent extent = {0, sending.copied.size()};
  wire::PullChunk& chunk = NameChunk(sending.reply, extent, item);
  Complete(sending.reply, /*unchanged=*/false, *chunk.mutable_done());
  if (Encodes(sending.reply, extent)) {
    EncodedChunk encoded({.encoding = sending.reply.encoding}, extent.elements);
    encoded.Add(sending.copied);
    return encoded.Take(chunk);
  }
  auto values = std::make_shared<std::vector<float>>(std::move(sending.copied));
  return {AsBytes(*values), [values] {}};
}

rpc::Attachment WorkerStream::EncodedItem(Sending& sending, wire::ServerItem& item) {
  const PullReply& reply = sending.reply;
  const SliceView view = reply.weights->view().First(reply.elements);
  // As many bytes as a chunk of fp32 has.
  const codec::Codec codec = {.encoding = reply.encoding};
  const uint64_t elements_max = view.chunk_elements() * sizeof(float) / codec::Granularity(codec);
  const size_t first = sending.next;
  Extent extent = {first * view.chunk_elements(), 0};
  const auto fits = [&](size_t index) {
    const uint64_t elements = extent.elements + view.chunk(index).size();
    return elements <= elements_max && Encodes(reply, {extent.offset, elements});
  };
  for (; sending.next < view.chunks() && fits(sending.next); ++sending.next) {
    extent.elements += view.chunk(sending.next).size();
  }
  EncodedChunk encoded(codec, extent.elements);
  for (size_t index = first; index < sending.next; ++index) encoded.Add(view.chunk(index));
  return encoded.Take(NameChunk(reply, extent, item));
}

rpc::Attachment WorkerStream::PlainItem(Sending& sending, wire::ServerItem& item) {
  const PullReply& reply = sending.reply;
  const SliceView view = reply.weights->view().First(reply.elements);
  const size_t index = sending.next++;
  const absl::Span<const float> values = view.chunk(index);
  wire::PullChunk& chunk = NameChunk(reply, {index * view.chunk_elements(), values.size()}, item);
  const std::optional<uint64_t> place = reply.shared_memory ? view.chunk_offset(index) : std::nullopt;
  if (!place) {
    // gRPC keeps what it has begun to write as long as the connection lives, which for a process that is stopped may be
    // for ever: that must be this chunk, and not a version.
    writing_from_.push_back(reply.weights);
    return {AsBytes(values), [chunk = view.reference(index)] {}};
  }
  sending.lent = true;
  chunk.set_segment_offset(*place);
  return {};
}

wire::PullChunk& WorkerStream::NameChunk(const PullReply& reply, const Extent& extent, wire::ServerItem& item) {
  wire::PullChunk& chunk = *item.mutable_pull();
  chunk.set_id(reply.id.value());
  chunk.set_shard(reply.shard.value());
  chunk.set_offset(extent.offset);
  chunk.set_elements(extent.elements);
  chunk.set_encoding(wire::ENCODING_FP32);
  ToWire(reply.version, *chunk.mutable_version());
  return chunk;
}

void WorkerStream::Complete(const PullReply& reply, bool unchanged, wire::PullDone& done) {
  done.set_id(reply.id.value());
  done.set_shard(reply.shard.value());
  ToWire(reply.version, *done.mutable_version());
  done.set_unchanged(unchanged);
  done.set_clock_min(reply.clock_min.value());
}

}  // namespace slackline::ps
