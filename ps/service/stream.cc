#include "ps/service/stream.h"

#include <utility>

#include "common/rpc/channel.h"

namespace slackline::ps {

Stream::Stream(StreamOwner& owner, ShardTable& table, ServiceMetrics& metrics)
    : owner_(owner), table_(table), metrics_(metrics), call_(&context_) {}

void Stream::Request(ExchangeService& service, grpc::ServerCompletionQueue* queue) {
  service.RequestExchange(&context_, &call_, queue, queue, &requested_);
}

// --- What the shards say ----------------------------------------------------------------------------------------

void Stream::Send(const wire::ServerFrame& frame) {
  if (end_.has_value()) return;
  // Notices to somebody who does not read would pile up.
  if (frame.has_waiting() && small_.size() >= kQueuedFramesMax) return;
  small_.push_back(rpc::Build(frame));
  // What this frame of the worker's leads to leaves together: OnRead() pumps.
  if (!receiving_) Pump();
}

void Stream::Serve(PullReply reply) {
  if (end_.has_value()) return;
  for (Sending& sending : pulls_) {
    if (sending.next > 0 || sending.reply.shard != reply.shard) continue;
    sending.reply = std::move(reply);
    return;
  }
  pulls_.push_back({std::move(reply), 0});
  if (!receiving_) Pump();
}

void Stream::End(const absl::Status& status) {
  if (end_.has_value()) return;
  end_ = status;
  table_.Closed(*this);
  small_.clear();
  pulls_.clear();
  FinishWhenQuiet();
}

// --- Events -----------------------------------------------------------------------------------------------------

void Stream::OnRequested(bool ok) {
  if (!ok) {  // the server is shutting down
    owner_.Finished(*this);
    return;
  }
  const absl::Status status = owner_.Accepted(*this);
  if (!status.ok()) return End(status);
  Pump();
}

void Stream::OnRead(bool ok) {
  reading_ = false;
  if (end_.has_value()) return FinishWhenQuiet();
  if (!ok) return End(absl::OkStatus());  // the client has closed its side, or is gone
  metrics_.bytes_received.Add(static_cast<double>(incoming_.Length()));
  frame_.Clear();
  absl::StatusOr<rpc::Payload> payload = rpc::Parse(incoming_, frame_);
  incoming_.Clear();
  if (!payload.ok()) return End(payload.status());
  receiving_ = true;
  std::optional<absl::Status> end = table_.Receive(*this, frame_, *std::move(payload));
  receiving_ = false;
  if (end.has_value()) return End(*end);
  heard = true;
  Pump();
}

void Stream::OnWritten(bool ok) {
  writing_ = false;
  if (end_.has_value()) return FinishWhenQuiet();
  if (!ok) return End(absl::UnavailableError("the client is gone"));
  Pump();
}

void Stream::OnFinished(bool /*ok*/) {
  done_ = true;
  FinishWhenQuiet();
}

// A call may be finished while a read is pending, not while a write is; it may be deleted when nothing is.
void Stream::FinishWhenQuiet() {
  if (!finishing_ && !writing_) {
    finishing_ = true;
    call_.Finish(rpc::ToGrpc(*end_), &finished_);
  }
  if (done_ && !reading_) owner_.Finished(*this);
}

// --- Queues -----------------------------------------------------------------------------------------------------

void Stream::Pump() {
  if (end_.has_value()) return;
  if (!reading_ && small_.size() < kQueuedFramesMax) {
    reading_ = true;
    call_.Read(&incoming_, &read_);
  }
  if (writing_) return;
  if (!small_.empty()) {
    const grpc::ByteBuffer frame = std::move(small_.front());
    small_.pop_front();
    Write(frame);
  } else if (!pulls_.empty()) {
    Write(NextPullFrame());
  }
}

void Stream::Write(const grpc::ByteBuffer& frame) {
  writing_ = true;
  metrics_.bytes_sent.Add(static_cast<double>(frame.Length()));
  // Frames that others follow need not go out one by one: small ones leave together.
  grpc::WriteOptions options;
  if (!small_.empty() || !pulls_.empty()) options.set_buffer_hint();
  call_.Write(frame, options, &written_);
}

grpc::ByteBuffer Stream::NextPullFrame() {
  Sending& sending = pulls_.front();
  const PullReply reply = sending.reply;
  wire::ServerFrame frame;
  if (reply.weights == nullptr) {
    Complete(reply, *frame.mutable_pull_done());
    pulls_.pop_front();
    return rpc::Build(frame);
  }
  const SliceView& view = reply.weights->view();
  wire::PullChunk& chunk = *frame.mutable_pull();
  chunk.set_id(reply.id.value());
  chunk.set_shard(reply.shard.value());
  chunk.set_offset(sending.next * view.chunk_elements());
  ToWire(reply.version, *chunk.mutable_version());
  const absl::Span<const float> values = view.chunk(sending.next++);
  if (sending.next == view.chunks()) {
    Complete(reply, *chunk.mutable_done());
    pulls_.pop_front();
  }
  return rpc::Build(frame, {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)},
                    [pinned = reply.weights] {});
}

void Stream::Complete(const PullReply& reply, wire::PullDone& done) {
  done.set_id(reply.id.value());
  done.set_shard(reply.shard.value());
  ToWire(reply.version, *done.mutable_version());
  done.set_unchanged(reply.weights == nullptr);
  done.set_clock_min(reply.clock_min.value());
}

}  // namespace slackline::ps
