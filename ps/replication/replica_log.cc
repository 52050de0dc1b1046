#include "ps/replication/replica_log.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/codec/wire_encoding.h"
#include "common/log/logging.h"
#include "ps/base/readable.h"
#include "ps/host/peer.h"
#include "ps/store/manifest.h"

namespace slackline::ps {
namespace {

// Of a frame: as much as a chunk of the data path has, where pieces allow it.
constexpr uint64_t kFrameBytes = 1 << 20;
constexpr int kReplicaFrameItemsMax = 256;

wire::ReplicaAnswer ReplicaAnswerOf(ShardId shard, const Sender& sender, const Answer& answer) {
  wire::ReplicaAnswer out;
  out.set_shard(shard.value());
  out.set_worker(sender.worker.value());
  out.set_incarnation(sender.incarnation.value());
  *out.mutable_answer() = ToMessage(answer);
  return out;
}

wire::ReplicaClock ReplicaClockOf(ShardId shard, const Sender& sender, Clock64 clock) {
  wire::ReplicaClock out;
  out.set_shard(shard.value());
  out.set_worker(sender.worker.value());
  out.set_incarnation(sender.incarnation.value());
  out.set_clock(clock.value());
  return out;
}

}  // namespace

ReplicaLog::ReplicaLog(Options options, ServiceMetrics& metrics, const TimeSource& time)
    : options_(std::move(options)),
      metrics_(metrics),
      time_(time),
      attachment_(options_.attachments_before),
      heard_(time.Now()),
      lease_until_(heard_) {}

std::string ReplicaLog::Follower() const {
  return absl::StrCat(options_.move == 0 ? "the backup" : "the server that takes shards", " (incarnation ",
                      backup_.value(), ")");
}

// --- What happens to the shards ---------------------------------------------------------------------------------

bool ReplicaLog::Follows(ShardId shard) const {
  return (state_ == State::kCatchingUp || state_ == State::kInStep) && taken_.contains(shard);
}

ReplicaLog::Entry& ReplicaLog::Record(ShardId shard) {
  const bool copied = copying_ && options_.shards[copying_->index].shard == shard;
  return (copied ? copying_->later : queue_).emplace_back();
}

void ReplicaLog::Stepped(ShardId shard, JournalStep step) {
  if (!Follows(shard)) return;
  RecordBytes(shard, step);
  Entry& entry = Record(shard);
  wire::ReplicaStep& out = *entry.item.mutable_step();
  out.set_shard(shard.value());
  ToWire(step.version, *out.mutable_version());
  out.set_weight(step.weight);
  out.set_gradient_norm(step.gradient_norm);
  out.set_lr_scale(step.arguments.lr_scale);
  out.set_average_rate(step.arguments.average_rate);
  out.set_samples(step.arguments.samples);
  out.set_batches(step.arguments.batches);
  out.set_staleness(step.arguments.staleness);
  out.mutable_learning_rates()->Add(step.arguments.learning_rates.begin(), step.arguments.learning_rates.end());
  for (const auto& [sender, answer] : step.answers) *out.add_answers() = ReplicaAnswerOf(shard, sender, answer);
  entry.staged = std::move(step.push);
  sink_->Wake();
}

void ReplicaLog::RecordBytes(ShardId shard, const JournalStep& step) {
  if (step.mean != nullptr) {
    return RecordPiece(shard, 0, step.mean->size(), {}, ByteSegments(AsBytes(*step.mean)), step.mean);
  }
  const auto owner = std::make_shared<const std::vector<rpc::Payload>>(step.push->chunks());
  uint64_t offset = 0;
  for (const EncodedPiece& piece : step.push->pieces()) {
    RecordPiece(shard, offset, piece.elements, piece.codec, piece.bytes, owner);
    offset += piece.elements;
  }
}

void ReplicaLog::RecordPiece(ShardId shard, uint64_t offset, uint64_t elements, const codec::Codec& codec,
                             const ByteSegments& bytes, const std::shared_ptr<const void>& owner) {
  const uint64_t most = FactsOf(codec).by_element ? kFrameBytes / codec::Granularity(codec) : elements;
  auto segment = bytes.segments().begin();
  size_t used = 0;  // of the segment
  while (elements > 0) {
    const uint64_t count = std::min(elements, most);
    Entry& entry = Record(shard);
    wire::ReplicaBytes& out = *entry.item.mutable_bytes();
    out.set_shard(shard.value());
    out.set_offset(offset);
    out.set_elements(count);
    out.set_encoding(EncodingToWire(codec.encoding));
    uint64_t left = FactsOf(codec).by_element ? count * codec::Granularity(codec) : bytes.size();
    entry.item.set_payload_bytes(static_cast<uint32_t>(left));
    while (left > 0) {
      const size_t size = std::min<uint64_t>(left, segment->size() - used);
      entry.pieces.push_back({segment->subspan(used, size), [owner] {}});
      left -= size;
      used += size;
      if (used < segment->size()) continue;
      ++segment;
      used = 0;
    }
    offset += count;
    elements -= count;
  }
}

void ReplicaLog::Answered(ShardId shard, const Sender& sender, const Answer& answer, Tell tell) {
  if (state_ != State::kLost && !Follows(shard)) return tell();
  // Said again before it was told once: once is enough.
  if (!untold_.insert({shard, sender, answer.sequence}).second) return;
  const absl::Time now = time_.Now();
  Waiting waiting = {shard, sender, answer.sequence, now, now + options_.timeouts.notice(), std::move(tell)};
  if (state_ == State::kLost) {
    withheld_.push_back(std::move(waiting));
    return;
  }
  Entry& entry = Record(shard);
  *entry.item.mutable_answer() = ReplicaAnswerOf(shard, sender, answer);
  entry.waiting = std::move(waiting);
  sink_->Wake();
}

size_t ReplicaLog::Untold(ShardId shard, const Sender& sender) const {
  const auto begin = untold_.lower_bound({shard, sender, Sequence()});
  return static_cast<size_t>(std::distance(begin, std::find_if(begin, untold_.end(), [&](const auto& answer) {
                                             return std::get<0>(answer) != shard || std::get<1>(answer) != sender;
                                           })));
}

void ReplicaLog::Joined(ShardId shard, const Sender& sender, Clock64 clock) {
  if (!Follows(shard)) return;
  *Record(shard).item.mutable_clock() = ReplicaClockOf(shard, sender, clock);
  sink_->Wake();
}

void ReplicaLog::Left(ShardId shard, const Sender& sender) {
  if (!Follows(shard)) return;
  wire::ReplicaClock& out = *Record(shard).item.mutable_clock();
  out = ReplicaClockOf(shard, sender, Clock64());
  out.set_left(true);
  sink_->Wake();
}

bool ReplicaLog::MayServe() const {
  const absl::Time now = time_.Now();
  return now > options_.serve_from && (state_ == State::kAlone || state_ == State::kCatchingUp || now <= lease_until_);
}

// --- The backup -------------------------------------------------------------------------------------------------

absl::Status ReplicaLog::Attach(ReplicaSink& sink, Incarnation backup) {
  if (state_ == State::kInStep || state_ == State::kLost) {
    return absl::UnavailableError(
        absl::StrCat("the backup of incarnation ", backup_.value(),
                     " was in step and may take over; the scheduler has not released this server"));
  }
  if (backup < backup_) {
    return absl::FailedPreconditionError(absl::StrCat("a backup of incarnation ", backup.value(),
                                                      "; that of incarnation ", backup_.value(), " was here already"));
  }
  if (sink_ != nullptr) {
    ReplicaSink* const earlier = sink_;
    Detach(absl::AbortedError("another backup has come"));
    earlier->End(absl::AbortedError("another backup has come"));
  }
  state_ = State::kCatchingUp;
  sink_ = &sink;
  ++attachment_;
  backup_ = backup;
  heard_ = time_.Now();
  log::Info(Follower(), " starts to follow this server");
  TakeNext();
  ShowState();
  return absl::OkStatus();
}

void ReplicaLog::TakeNext() {
  if (state_ != State::kCatchingUp || copying_ || in_step_queued_) return;
  if (taken_.size() == options_.shards.size()) {
    queue_.emplace_back().item.mutable_in_step();
    in_step_queued_ = true;
    return sink_->Wake();
  }
  const size_t index = taken_.size();
  std::optional<ShardSnapshot> snapshot = options_.take(options_.shards[index].shard);
  if (!snapshot) return;  // Seeded() comes, or Tick()
  const ShardId shard = options_.shards[index].shard;
  taken_.insert(shard);
  copying_.emplace(Copying{.index = index, .snapshot = *std::move(snapshot), .array = 0, .chunk = 0, .later = {}});
  if (options_.members != nullptr) {
    for (const auto& [sender, clock] : options_.members(shard)) {
      *copying_->later.emplace_back().item.mutable_clock() = ReplicaClockOf(shard, sender, clock);
    }
  }
  sink_->Wake();
}

bool ReplicaLog::NextFrame(const ReplicaSink& sink, wire::ReplicaFrame& frame, std::vector<rpc::Attachment>& pieces) {
  if (sink_ != &sink || (queue_.empty() && !copying_ && !ping_due_)) return false;
  ping_due_ = false;
  frame.set_sent_us(static_cast<uint64_t>(absl::ToUnixMicros(time_.Now())));
  uint64_t bytes = 0;
  const bool copy_only = std::exchange(copy_is_next_, false) && copying_;
  while (!copy_only && !queue_.empty() && frame.items_size() < kReplicaFrameItemsMax) {
    const uint64_t next = queue_.front().item.payload_bytes();
    if (bytes > 0 && bytes + next > kFrameBytes) break;
    bytes += next;
    Emit(std::move(queue_.front()), frame, pieces);
    queue_.pop_front();
  }
  // The two take turns, so that neither can hold up the other for good. A long piece of a gradient goes alone: together
  // with a chunk of an array it would be longer than a message may be.
  copy_is_next_ = copying_ && bytes > kFrameBytes;
  if (copying_ && !copy_is_next_) EmitCopied(frame, pieces);
  return true;
}

void ReplicaLog::Emit(Entry entry, wire::ReplicaFrame& frame, std::vector<rpc::Attachment>& pieces) {
  ++sent_;
  if (entry.item.has_in_step()) in_step_number_ = sent_;
  if (entry.waiting.tell != nullptr || entry.staged != nullptr) {
    unhandled_.push_back({sent_, std::move(entry.waiting), std::move(entry.staged)});
  }
  frame.add_items()->Swap(&entry.item);
  std::move(entry.pieces.begin(), entry.pieces.end(), std::back_inserter(pieces));
}

void ReplicaLog::EmitCopied(wire::ReplicaFrame& frame, std::vector<rpc::Attachment>& pieces) {
  const ShardIdentity& identity = options_.shards[copying_->index];
  const ShardView& view = copying_->snapshot.numbers;
  const auto slice = [&](size_t array) -> const SliceView& {
    return array == 0 ? view.weights : view.arrays[array - 1];
  };
  while (copying_->array <= view.arrays.size() && copying_->chunk == slice(copying_->array).chunks()) {
    ++copying_->array;
    copying_->chunk = 0;
  }
  Entry entry;
  if (copying_->array <= view.arrays.size()) {
    const SliceView& from = slice(copying_->array);
    const absl::Span<const float> values = from.chunk(copying_->chunk);
    wire::ReplicaArray& out = *entry.item.mutable_array();
    out.set_shard(identity.shard.value());
    out.set_array(static_cast<uint32_t>(copying_->array));
    out.set_elements(values.size());
    entry.item.set_payload_bytes(static_cast<uint32_t>(values.size() * sizeof(float)));
    entry.pieces.push_back({AsBytes(values), [chunk = from.reference(copying_->chunk)] {}});
    ++copying_->chunk;
    return Emit(std::move(entry), frame, pieces);
  }
  for (WorkerClock& worker : copying_->snapshot.engine.workers) {
    const size_t too_many = worker.answers.size() - std::min(worker.answers.size(), options_.answers_max);
    worker.answers.erase(worker.answers.begin(), worker.answers.begin() + static_cast<std::ptrdiff_t>(too_many));
  }
  *entry.item.mutable_base()->mutable_state() = ToManifest(identity, copying_->snapshot, 0);
  Emit(std::move(entry), frame, pieces);
  std::move(copying_->later.begin(), copying_->later.end(), std::back_inserter(queue_));
  copying_.reset();
  TakeNext();
}

absl::Status ReplicaLog::Handled(const ReplicaSink& sink, uint64_t handled, uint64_t echo_us) {
  if (&sink != sink_) return absl::AbortedError("another backup has come");
  if (handled > sent_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the backup says that it has handled ", handled, " items; ", sent_, " were sent"));
  }
  const absl::Time now = time_.Now();
  const absl::Time echo = absl::FromUnixMicros(static_cast<int64_t>(std::min<uint64_t>(echo_us, INT64_MAX)));
  if (echo > now) return absl::InvalidArgumentError("the backup repeats a time that is still to come");
  heard_ = now;
  const bool served = MayServe();
  lease_until_ = std::max(lease_until_, echo + options_.timeouts.lease());
  std::vector<Waiting> tells;
  while (!unhandled_.empty() && unhandled_.front().number <= handled) {
    if (unhandled_.front().waiting.tell != nullptr) tells.push_back(std::move(unhandled_.front().waiting));
    unhandled_.pop_front();
  }
  if (state_ == State::kCatchingUp && in_step_number_ > 0 && handled >= in_step_number_) {
    state_ = State::kInStep;
    log::Info(Follower(), " is in step with this server");
    check_at_ = now + options_.check_every;
    ShowState();
    if (!std::exchange(was_in_step_, true) && options_.on_first_in_step != nullptr) options_.on_first_in_step();
  }
  if (!served && MayServe()) options_.on_served_again();
  TellAll(std::move(tells));
  return absl::OkStatus();
}

void ReplicaLog::TellAll(std::vector<Waiting> waiting) {
  for (const Waiting& one : waiting) untold_.erase({one.shard, one.sender, one.sequence});
  for (const Waiting& one : waiting) one.tell();
}

// --- The end of a backup ----------------------------------------------------------------------------------------

void ReplicaLog::Detached(const ReplicaSink& sink, const absl::Status& why) {
  if (&sink == sink_) Detach(why);
}

void ReplicaLog::Detach(const absl::Status& why) {
  sink_ = nullptr;
  reason_ = std::string(why.message());
  std::vector<Waiting> tells = TakeWaiting();
  taken_.clear();
  copying_.reset();
  queue_.clear();
  unhandled_.clear();
  in_step_queued_ = false;
  in_step_number_ = 0;
  sent_ = 0;
  if (state_ == State::kInStep) {
    state_ = State::kLost;
    withheld_ = std::move(tells);
    if (why.ok()) {
      log::Info(Follower(), " has received all pushes");
    } else if (!stopping_) {
      log::Warning(Follower(), " is lost (", reason_,
                   "): this server answers no push until the scheduler confirms that the backup will not take over");
    }
  } else {
    state_ = State::kAlone;
    if (!why.ok()) log::Warning(Follower(), " is lost while it was catching up: ", reason_);
    TellAll(std::move(tells));
  }
  ShowState();
}

std::vector<ReplicaLog::Waiting> ReplicaLog::TakeWaiting() {
  std::vector<Waiting> all;
  const auto take = [&](auto& from) {
    for (auto& entry : from) {
      if (entry.waiting.tell != nullptr) all.push_back(std::move(entry.waiting));
    }
  };
  take(unhandled_);
  take(queue_);
  if (copying_) take(copying_->later);
  return all;
}

void ReplicaLog::Released(uint64_t attachment) {
  if (attachment < attachment_ || state_ == State::kAlone || state_ == State::kCatchingUp) return;
  if (state_ == State::kInStep) {
    ReplicaSink* const sink = sink_;
    const absl::Status why = absl::AbortedError("the scheduler has given this backup up");
    Detach(why);
    sink->End(why);
  }
  state_ = State::kAlone;
  log::Warning(Follower(), " will not take over: this server continues without a backup until another backup follows");
  ShowState();
  options_.on_served_again();
  TellAll(std::exchange(withheld_, {}));
}

void ReplicaLog::Close(const absl::Status& why) {
  if (sink_ == nullptr) return;
  ReplicaSink* const sink = sink_;
  Detach(why);
  sink->End(why);
}

void ReplicaLog::Notify(Waiting& waiting, absl::Time now, const std::string& awaited) {
  if (waiting.tell == nullptr || now < waiting.notice_at) return;
  waiting.notice_at = now + options_.timeouts.notice();
  options_.notify(waiting.shard, waiting.sender, now - waiting.since, awaited);
}

void ReplicaLog::Check(absl::Time now) {
  if (state_ != State::kInStep || now < check_at_) return;
  check_at_ = now + options_.check_every;
  const ShardId shard = options_.shards[checked_++ % options_.shards.size()].shard;
  const std::optional<ShardSnapshot> snapshot = options_.take(shard);
  if (!snapshot) return;
  wire::ReplicaCheck& check = *Record(shard).item.mutable_check();
  check.set_shard(shard.value());
  ToWire(snapshot->engine.version, *check.mutable_version());
  check.set_checksum(options_.checksum(shard));
}

void ReplicaLog::Tick() {
  const absl::Time now = time_.Now();
  ShowLag(now);
  if (sink_ == nullptr) {
    for (Waiting& waiting : withheld_) {
      Notify(waiting, now, "the scheduler to say that the backup, which is lost, will not take over");
    }
    return;
  }
  TakeNext();
  if (now - heard_ > options_.timeouts.worker_dead()) {
    ReplicaSink* const sink = sink_;
    const absl::Status why =
        absl::DeadlineExceededError(absl::StrCat("the backup has been silent for ", Readable(now - heard_)));
    Detach(why);
    return sink->End(why);
  }
  for (Unhandled& unhandled : unhandled_) Notify(unhandled.waiting, now, "the backup to have it");
  for (Entry& entry : queue_) Notify(entry.waiting, now, "the backup to have what was before it");
  Check(now);
  ping_due_ = true;
  sink_->Wake();
}

wire::BackupProgress ReplicaLog::progress() const {
  wire::BackupProgress progress;
  progress.set_attachment(attachment_);
  progress.set_move(options_.move);
  if (attachment_ == 0) return progress;
  progress.set_backup_incarnation(backup_.value());
  progress.set_in_step(state_ == State::kInStep || state_ == State::kLost);
  progress.set_lost(sink_ == nullptr);
  if (sink_ == nullptr) progress.set_reason(reason_);
  return progress;
}

void ReplicaLog::ShowState() {
  if (options_.move == 0) metrics_.backup_in_step.Set(state_ == State::kInStep ? 1 : 0);
}

void ReplicaLog::ShowLag(absl::Time now) {
  if (options_.move != 0) return;
  absl::Time since = now;
  const auto look = [&since](const Waiting& waiting) {
    if (waiting.tell != nullptr) since = std::min(since, waiting.since);
  };
  for (const Unhandled& unhandled : unhandled_) look(unhandled.waiting);
  for (const Entry& entry : queue_) look(entry.waiting);
  for (const Waiting& waiting : withheld_) look(waiting);
  metrics_.replication_lag_items.Set(static_cast<double>(unhandled_.size() + queue_.size() + withheld_.size()));
  metrics_.replication_lag_seconds.Set(absl::ToDoubleSeconds(now - since));
}

}  // namespace slackline::ps
