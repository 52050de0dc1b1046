#include "ps/service/replica_stream.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/log/logging.h"
#include "common/rpc/frame.h"
#include "common/shm/host.h"
#include "ps/base/readable.h"

namespace slackline::ps {
namespace {

// A backup says a few numbers, and in its hello which shards it takes.
constexpr rpc::FrameLimits kBackupFrameLimits = {.fields_max = 16, .header_bytes_max = 256 << 10};
constexpr char kReplicate[] = "/slackline.wire.ParameterServer/Replicate";

}  // namespace

// --- The server's side ------------------------------------------------------------------------------------------

void ReplicaStream::OnRequested(bool ok) {
  if (!ok) return owner_.Finished(*this);  // the server is shutting down
  const absl::Status status = owner_.Accepted(*this);
  if (!status.ok()) return End(status);
  Read();
}

void ReplicaStream::Read() {
  reading_ = true;
  call_.Read(&incoming_, &read_);
}

void ReplicaStream::OnRead(bool ok) {
  reading_ = false;
  if (end_.has_value()) return FinishWhenQuiet();
  if (!ok) return End(absl::UnavailableError("the backup is gone"));
  const absl::StatusOr<rpc::FoundFrame> found = rpc::FoundFrame::Find(incoming_, kBackupFrameLimits);
  incoming_.Clear();
  wire::BackupFrame frame;
  absl::Status status = found.status();
  if (found.ok()) status = found->Parse(frame).status();
  if (status.ok()) status = Receive(frame);
  if (end_.has_value()) return FinishWhenQuiet();
  if (!status.ok()) return End(status);
  Read();
  Pump();
}

absl::Status ReplicaStream::Receive(const wire::BackupFrame& frame) {
  if (attached_) {
    if (frame.has_hello()) return absl::InvalidArgumentError("a second hello on one stream");
    return table_.log()->Handled(*this, frame.handled(), frame.echo_us());
  }
  if (!frame.has_hello()) return absl::InvalidArgumentError("the first frame of a stream must have a hello");
  absl::Status status = table_.AttachBackup(*this, frame.hello());
  attached_ = status.ok();
  return status;
}

void ReplicaStream::OnWritten(bool ok) {
  writing_ = false;
  if (end_.has_value()) return FinishWhenQuiet();
  if (!ok) return End(absl::UnavailableError("the backup is gone"));
  Pump();
}

void ReplicaStream::Pump() {
  // NextFrame() may wake this again.
  if (end_.has_value() || writing_ || table_.log() == nullptr) return;
  writing_ = true;
  wire::ReplicaFrame frame;
  std::vector<rpc::Attachment> pieces;
  writing_ = table_.log()->NextFrame(*this, frame, pieces);
  if (!writing_) return;
  call_.Write(rpc::Build(frame, absl::MakeSpan(pieces)), &written_);
}

void ReplicaStream::End(const absl::Status& status) {
  if (end_.has_value()) return;
  end_ = status;
  if (std::exchange(attached_, false)) table_.log()->Detached(*this, status);
  FinishWhenQuiet();
}

void ReplicaStream::Tick() {
  // A status may never leave if the peer reads nothing.
  constexpr int kTicks = 1, kTicksToFinish = 16;
  if (end_.has_value() && ++ticks_since_end_ > (finishing_ ? kTicksToFinish : kTicks)) context_.TryCancel();
}

void ReplicaStream::OnFinished(bool /*ok*/) {
  done_ = true;
  FinishWhenQuiet();
}

void ReplicaStream::FinishWhenQuiet() {
  if (!finishing_ && !writing_) {
    finishing_ = true;
    call_.Finish(rpc::ToGrpc(*end_), &finished_);
  }
  if (done_ && !reading_) owner_.Finished(*this);
}

// --- The backup's side ------------------------------------------------------------------------------------------

struct BackupLink::Attempt {
  Attempt(const std::string& address, const std::shared_ptr<const rpc::Protection>& protection)
      : stub(rpc::DataChannel(address, protection)) {}

  grpc::GenericStub stub;
  grpc::ClientContext context;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
  grpc::ByteBuffer received;
  grpc::Status status;
  absl::Status broken_because;  // our own reason, which goes before gRPC's
  bool starting = true;
  bool reading = false;
  bool writing = false;
  bool finishing = false;
  bool finished = false;
  bool let_in = false;  // something has come
  bool over = false;    // the other side has ended it
  absl::Time heard;
  uint64_t said_handled = 0;
  uint64_t said_echo = 0;
};

BackupLink::BackupLink(ShardTable& table, grpc::CompletionQueue* queue, const TimeSource& time,
                       absl::Duration silence_max)
    : table_(table), queue_(queue), time_(time), silence_max_(silence_max) {}

BackupLink::~BackupLink() { SLACKLINE_CHECK(quiet()); }

void BackupLink::Follow(std::string address, std::shared_ptr<const rpc::Protection> protection) {
  wanted_ = true;
  address_ = std::move(address);
  protection_ = std::move(protection);
  said_.clear();
  if (attempt_ != nullptr) return Break(absl::AbortedError("another server is to be followed"));
  Connect();
}

void BackupLink::Stop() {
  wanted_ = false;
  if (attempt_ != nullptr) Break(absl::CancelledError("no backup any more"));
}

void BackupLink::Tick() {
  if (attempt_ != nullptr) {
    // gRPC would read from a connection that is gone for ever.
    if (time_.Now() - attempt_->heard <= silence_max_ || !attempt_->broken_because.ok()) return;
    return Break(absl::DeadlineExceededError(absl::StrCat("it has been silent for ", Readable(silence_max_))));
  }
  if (wanted_) Connect();
}

void BackupLink::Connect() {
  attempt_ = std::make_unique<Attempt>(address_, protection_);
  attempt_->heard = time_.Now();
  attempt_->call = attempt_->stub.PrepareCall(&attempt_->context, kReplicate, queue_);
  attempt_->call->StartCall(static_cast<Event*>(&started_));
}

void BackupLink::OnStarted(bool ok) {
  attempt_->starting = false;
  if (!ok || !attempt_->broken_because.ok()) return Finish();
  const std::optional<wire::BackupHello> hello = table_.BeginFollowing();
  if (!hello) return Break(absl::CancelledError("no backup any more"));
  wire::BackupFrame frame;
  *frame.mutable_hello() = *hello;
  Say(frame);
  Read();
}

void BackupLink::Read() {
  attempt_->reading = true;
  attempt_->call->Read(&attempt_->received, static_cast<Event*>(&read_));
}

void BackupLink::OnRead(bool ok) {
  attempt_->reading = false;
  attempt_->over = !ok;
  if (!ok || !attempt_->broken_because.ok()) return Finish();
  attempt_->let_in = true;
  attempt_->heard = time_.Now();
  said_.clear();
  grpc::ByteBuffer bytes;
  bytes.Swap(&attempt_->received);
  Read();
  wire::ReplicaFrame frame;
  const absl::StatusOr<rpc::Payload> payload = rpc::Parse(bytes, frame);
  const absl::Status status = payload.ok() ? table_.Follow(frame, *payload) : payload.status();
  if (!status.ok()) {
    log::Error("cannot follow the server at ", address_, ": ", std::string(status.message()));
    return Break(status);
  }
  Acknowledge();
}

void BackupLink::Acknowledge() {
  const BackupFeed* const feed = table_.feed();
  if (feed == nullptr || attempt_->writing || !attempt_->let_in) return;
  if (feed->handled() == attempt_->said_handled && feed->echo_us() == attempt_->said_echo) return;
  attempt_->said_handled = feed->handled();
  attempt_->said_echo = feed->echo_us();
  wire::BackupFrame frame;
  frame.set_handled(feed->handled());
  frame.set_echo_us(feed->echo_us());
  Say(frame);
}

void BackupLink::Say(const wire::BackupFrame& frame) {
  attempt_->writing = true;
  attempt_->call->Write(rpc::Build(frame), static_cast<Event*>(&written_));
}

void BackupLink::OnWritten(bool ok) {
  attempt_->writing = false;
  if (!ok || attempt_->over || !attempt_->broken_because.ok()) return Finish();
  Acknowledge();
}

void BackupLink::Break(const absl::Status& why) {
  if (attempt_->broken_because.ok()) attempt_->broken_because = why;
  attempt_->context.TryCancel();
  Finish();
}

void BackupLink::Finish() {
  if (!attempt_->finishing && !attempt_->starting && !attempt_->writing) {
    attempt_->finishing = true;
    attempt_->call->Finish(&attempt_->status, static_cast<Event*>(&finished_));
  }
  EndWhenQuiet();
}

void BackupLink::OnFinished(bool /*ok*/) {
  attempt_->finished = true;
  EndWhenQuiet();
}

void BackupLink::EndWhenQuiet() {
  if (!attempt_->finished || attempt_->reading || attempt_->writing) return;
  const absl::Status why = attempt_->broken_because.ok() ? rpc::FromGrpc(attempt_->status) : attempt_->broken_because;
  attempt_.reset();  // the next one is Tick()'s
  if (!wanted_) return;
  // A move is over; this one hears of it when it is promoted. There is nothing to follow any more, however long that
  // takes.
  if (why.ok()) {
    wanted_ = false;
    return log::Info("the server at ", address_, " has released its shards; this backup stops following it");
  }
  const std::string words = why.ToString();
  if (words != said_) log::Warning("this backup lost the server at ", address_, ": ", words, "; it connects again");
  said_ = words;
}

// --- Both -------------------------------------------------------------------------------------------------------

void ReplicaStreams::OnBackup(const wire::ReplicationSource* source) {
  if (source == nullptr || closed_) return link_.Stop();
  const bool near = !source->local().socket().empty() && source->local().host() == shm::SocketScope();
  link_.Follow(near ? rpc::UnixAddress(source->local().socket()) : source->address(),
               security_.To(security::Role::kServer));
}

void ReplicaStreams::Await() {
  awaiting_ = true;
  (new ReplicaStream(*this, table_))->Request(service_, queue_);  // deleted in Finished()
}

absl::Status ReplicaStreams::Accepted(ReplicaStream& stream) {
  stream.accepted_at = time_.Now();
  streams_.insert(&stream);
  awaiting_ = false;
  if (closed_) return absl::UnavailableError("the server is stopping");
  Await();
  const auto caller = security_.guard().Admit(stream.context(), "slackline.wire.ParameterServer.Replicate");
  if (!caller.ok()) return caller.status();
  const auto open =
      std::count_if(streams_.begin(), streams_.end(), [](const ReplicaStream* one) { return !one->ended(); });
  if (static_cast<size_t>(open) <= kStreamsMax) return absl::OkStatus();
  const absl::Status too_many = absl::ResourceExhaustedError(
      absl::StrCat("the server has ", open - 1, " streams of backups; allowed are ", kStreamsMax));
  ReplicaStream* const silent = OldestSilent();
  if (silent == nullptr || silent == &stream) return too_many;
  silent->End(too_many);
  return absl::OkStatus();
}

ReplicaStream* ReplicaStreams::OldestSilent() const {
  ReplicaStream* oldest = nullptr;
  for (ReplicaStream* stream : streams_) {
    if (stream->silent() && (oldest == nullptr || stream->accepted_at < oldest->accepted_at)) oldest = stream;
  }
  return oldest;
}

void ReplicaStreams::Finished(ReplicaStream& stream) {
  if (streams_.erase(&stream) == 0) awaiting_ = false;
  delete &stream;
}

void ReplicaStreams::Tick() {
  if (table_.log() != nullptr) table_.log()->Tick();
  const absl::Time since = time_.Now() - silence_max_;
  for (ReplicaStream* stream : std::vector<ReplicaStream*>(streams_.begin(), streams_.end())) {
    stream->Tick();
    if (!stream->silent() || stream->accepted_at >= since) continue;
    stream->End(absl::DeadlineExceededError(absl::StrCat("no hello within ", Readable(silence_max_))));
  }
  link_.Tick();
}

void ReplicaStreams::Close(const absl::Status& status) {
  closed_ = true;
  if (table_.log() != nullptr) table_.log()->Stopping();
  link_.Stop();
  for (ReplicaStream* stream : std::vector<ReplicaStream*>(streams_.begin(), streams_.end())) stream->End(status);
}

}  // namespace slackline::ps
