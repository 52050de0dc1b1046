#include "worker/client/server_stream.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/rpc/connections.h"

namespace slackline::worker {
namespace {

bool IsPush(const Outgoing& queued, ShardId shard, Sequence sequence) {
  return queued.item.has_push() && queued.item.push().shard() == shard.value() &&
         queued.item.push().sequence() == sequence.value();
}

}  // namespace

// Small items leave together up to so many bytes of payload.
constexpr size_t kGatherBytes = 64 << 10;
constexpr int kFrameItemsMax = 256;

constexpr char kMethod[] = "/slackline.wire.ParameterServer/Exchange";

// One call, with a channel of its own: a shared one would make a new attempt wait for gRPC's back-off, not ours.
struct ServerStream::Attempt {
  explicit Attempt(const Options& options) : stub(rpc::DataChannel(options.address, options.protection)) {}

  grpc::GenericStub stub;
  grpc::ClientContext context;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
  grpc::ByteBuffer received;
  grpc::Status status;
  absl::Status broken_because;  // our own reason, which goes before gRPC's
  int outstanding = 0;
  bool started = false;
  bool writing = false;
  bool half_closed = false;
  bool finishing = false;
  bool finished = false;
};

ServerStream::ServerStream(const Options& options, grpc::CompletionQueue& queue, const TimeSource& time, Owner& owner)
    : options_(options), queue_(queue), time_(time), owner_(owner), backoff_(options.jitter_seed) {
  const std::pair<Tag*, Handler> tags[] = {{&start_tag_, &ServerStream::Started},
                                           {&read_tag_, &ServerStream::ReadDone},
                                           {&write_tag_, &ServerStream::WriteDone},
                                           {&finish_tag_, &ServerStream::Finished}};
  for (const auto& [tag, handler] : tags) {
    tag->stream = this;
    tag->handler = handler;
  }
}

ServerStream::~ServerStream() { SLACKLINE_CHECK(attempt_ == nullptr); }

void* ServerStream::Begin(Tag& tag) {
  ++attempt_->outstanding;
  return static_cast<QueuedOperation*>(&tag);
}

void ServerStream::Connect() {
  SLACKLINE_CHECK(attempt_ == nullptr && !shutdown_);
  retry_at_ = absl::InfiniteFuture();
  attempt_ = std::make_unique<Attempt>(options_);
  attempt_->call = attempt_->stub.PrepareCall(&attempt_->context, kMethod, &queue_);
  attempt_->call->StartCall(Begin(start_tag_));
}

void ServerStream::Started(bool ok) {
  --attempt_->outstanding;
  attempt_->started = ok;
  if (!ok) return BeginFinish();
  SLACKLINE_CHECK(outgoing_.empty());
  *outgoing_.emplace_back().item.mutable_hello() = owner_.MakeHello(*this);
  WriteQueued();
  Read();
}

void ServerStream::Read() { attempt_->call->Read(&attempt_->received, Begin(read_tag_)); }

void ServerStream::ReadDone(bool ok) {
  --attempt_->outstanding;
  if (!ok) return BeginFinish();
  grpc::ByteBuffer bytes;
  bytes.Swap(&attempt_->received);
  Read();
  Dispatch(bytes);
}

void ServerStream::Dispatch(const grpc::ByteBuffer& bytes) {
  // What is still in the pipe after we broke off is not listened to: the owner was told already what is missing.
  if (shutdown_ || !attempt_->broken_because.ok()) return;
  wire::ServerFrame frame;
  const absl::StatusOr<rpc::Payload> payload = rpc::Parse(bytes, frame);
  if (!payload.ok()) return Break(absl::InternalError(absl::StrCat("no frame: ", payload.status().message())));
  rpc::PayloadCutter payloads(*payload);
  for (const wire::ServerItem& item : frame.items()) {
    if (item.payload_bytes() > payloads.left()) {
      return Break(absl::InternalError(absl::StrCat("an item claims ", item.payload_bytes(), " bytes of payload, ",
                                                    payloads.left(), " are left in the frame")));
    }
    Dispatch(item, payloads.Next(item.payload_bytes()));
    if (shutdown_ || !attempt_->broken_because.ok()) return;
  }
}

void ServerStream::Dispatch(const wire::ServerItem& item, const rpc::Payload& payload) {
  if (open_ || item.has_refused()) {
    if (!item.has_refused()) backoff_.Reset();  // a server that only greets or refuses is not hurried
    return owner_.Received(*this, item, payload);
  }
  if (!item.has_welcome()) return Break(absl::InternalError("its first message was not a Welcome"));
  open_ = true;
  owner_.Opened(*this, item.welcome());
}

void ServerStream::Send(std::vector<Outgoing> items) {
  SLACKLINE_CHECK(open_);
  for (Outgoing& item : items) outgoing_.push_back(std::move(item));
  if (!attempt_->writing) WriteNext();
}

void ServerStream::SendFirst(std::vector<Outgoing> items) {
  SLACKLINE_CHECK(open_);
  outgoing_.insert(outgoing_.begin(), std::make_move_iterator(items.begin()), std::make_move_iterator(items.end()));
  if (!attempt_->writing) WriteNext();
}

void ServerStream::QueueFirstShardsFirst() {
  const auto rank = [](const Outgoing& queued) {
    const wire::WorkerItem& item = queued.item;
    return item.has_push() ? std::pair(item.push().sequence(), uint64_t{1} + item.push().shard())
                           : std::pair(uint64_t{0}, uint64_t{0});
  };
  std::stable_sort(outgoing_.begin(), outgoing_.end(),
                   [&](const Outgoing& a, const Outgoing& b) { return rank(a) < rank(b); });
}

bool ServerStream::CommitQueuedPush(ShardId shard, Sequence sequence, const wire::PushCommit& trailer) {
  const auto last = std::find_if(outgoing_.rbegin(), outgoing_.rend(),
                                 [&](const Outgoing& queued) { return IsPush(queued, shard, sequence); });
  if (last == outgoing_.rend()) return false;
  *last->item.mutable_push()->mutable_commit() = trailer;
  return true;
}

void ServerStream::WriteNext() {
  if (outgoing_.empty()) {
    if (shutdown_ && !attempt_->half_closed) {
      attempt_->half_closed = true;
      attempt_->writing = true;
      attempt_->call->WritesDone(Begin(write_tag_));
    }
    return;
  }
  WriteQueued();
}

void ServerStream::WriteQueued() {
  wire::WorkerFrame frame;
  frame.set_job(options_.job.value());
  frame.set_generation(options_.generation.value());
  std::vector<rpc::Attachment> pieces;
  uint64_t bytes = 0;
  while (!outgoing_.empty() && bytes < kGatherBytes && frame.items_size() < kFrameItemsMax) {
    Outgoing& next = outgoing_.front();
    rpc::Attachment piece = next.encode ? next.encode() : rpc::Attachment{next.payload, nullptr};
    if (!next.payload.empty()) piece.release = next.loans->Lend();
    wire::WorkerItem& item = *frame.add_items();
    item.Swap(&next.item);
    item.set_payload_bytes(static_cast<uint32_t>(piece.bytes.size()));
    bytes += std::max<uint64_t>(next.bytes, piece.bytes.size());
    if (!piece.bytes.empty()) pieces.push_back(std::move(piece));
    outgoing_.pop_front();
  }
  grpc::WriteOptions options;
  if (!outgoing_.empty()) options.set_buffer_hint();
  attempt_->writing = true;
  attempt_->call->Write(rpc::Build(frame, absl::MakeSpan(pieces)), options, Begin(write_tag_));
}

bool ServerStream::flushed() const { return !open_ || (!attempt_->writing && outgoing_.empty()); }

void ServerStream::WriteDone(bool ok) {
  --attempt_->outstanding;
  attempt_->writing = false;
  // When it failed, the read in progress fails too and says why.
  if (ok && !attempt_->finishing && attempt_->broken_because.ok()) WriteNext();
  EndAttemptIfQuiet();
}

void ServerStream::DropQueuedPushes(ShardId shard) {
  std::erase_if(outgoing_, [=](const Outgoing& next) {
    return next.item.has_push() && next.item.push().shard() == shard.value();
  });
}

void ServerStream::DropQueuedPush(ShardId shard, Sequence sequence) {
  std::erase_if(outgoing_, [=](const Outgoing& queued) { return IsPush(queued, shard, sequence); });
}

void ServerStream::Aim(const std::string& address, Generation generation) {
  options_.address = address;
  options_.generation = generation;
}

void ServerStream::Redirect(const std::string& address, Generation generation) {
  Aim(address, generation);
  backoff_.Reset();
  Break(absl::UnavailableError("the server has come back elsewhere"));
  if (attempt_ != nullptr || shutdown_ || retry_at_ == absl::InfiniteFuture()) return;
  retry_at_ = time_.Now();
  owner_.WakeAt(retry_at_);
}

void ServerStream::Break(const absl::Status& why) {
  if (attempt_ == nullptr || !attempt_->broken_because.ok()) return;
  attempt_->broken_because = why;
  open_ = false;
  outgoing_.clear();
  attempt_->context.TryCancel();
}

void ServerStream::Shutdown(std::optional<Outgoing> last_item) {
  if (shutdown_) {
    if (!last_item && attempt_ != nullptr) attempt_->context.TryCancel();
    return;
  }
  shutdown_ = true;
  retry_at_ = absl::InfiniteFuture();
  if (attempt_ == nullptr) return;
  outgoing_.clear();
  if (!open_ || !last_item) return attempt_->context.TryCancel();
  outgoing_.push_back(std::move(*last_item));
  if (!attempt_->writing) WriteNext();
}

void ServerStream::CutConnection() {
  if (attempt_ != nullptr) rpc::CutConnectionsTo(attempt_->context.peer());
}

void ServerStream::BeginFinish() {
  if (attempt_->finishing) return;
  attempt_->finishing = true;
  open_ = false;
  outgoing_.clear();
  attempt_->call->Finish(&attempt_->status, Begin(finish_tag_));
}

void ServerStream::Finished(bool) {
  --attempt_->outstanding;
  attempt_->finished = true;
  EndAttemptIfQuiet();
}

void ServerStream::EndAttemptIfQuiet() {
  if (!attempt_->finished || attempt_->outstanding > 0) return;
  const absl::Status status =
      attempt_->broken_because.ok() ? rpc::FromGrpc(attempt_->status) : attempt_->broken_because;
  attempt_.reset();
  if (!shutdown_) {
    retry_at_ = time_.Now() + backoff_.Next();
    owner_.WakeAt(retry_at_);
  }
  owner_.Broken(*this, status);
}

void ServerStream::Tick(absl::Time now) {
  if (!shutdown_ && now >= retry_at_) Connect();
}

}  // namespace slackline::worker
