// Frames, streams, and the server that is followed or follows. The scheduler installs shards in shard_table_install.cc.
#include "ps/service/shard_table.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/protocol_version.h"
#include "common/log/logging.h"
#include "common/process/kill_point.h"

namespace slackline::ps {
namespace {

// Far from where sums of clocks overflow.
constexpr uint64_t kClockMax = uint64_t{1} << 62;
constexpr int kItemsMax = 4096;
// Limits of a frame beside its payload: a frame needs more than the first only if it names many shards at once.
constexpr size_t kOrdinaryHeaderBytes = 4 << 10;
constexpr size_t kHeaderBytesMax = 512 << 10;
constexpr size_t kHeaderBytesOfShard = 256;
// Times what the window has room for: of more, one would only take the place of the other.
constexpr size_t kPullsOfFrame = 4;

// Whether the items make sense as one frame.
absl::Status CheckShape(const wire::WorkerFrame& frame, size_t payload_bytes) {
  if (frame.items_size() < 1 || frame.items_size() > kItemsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame has ", frame.items_size(), " items; allowed are 1 to ", kItemsMax));
  }
  uint64_t claimed = 0;
  for (const wire::WorkerItem& item : frame.items()) claimed += item.payload_bytes();
  if (claimed == payload_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the items claim ", claimed, " bytes of payload, the frame has ", payload_bytes));
}

bool SameShards(const wire::InstallShardsRequest& a, const wire::InstallShardsRequest& b) {
  const auto same = [](const auto& left, const auto& right) {
    return absl::c_equal(left, right, [](const auto& one, const auto& other) {
      return one.SerializeAsString() == other.SerializeAsString();
    });
  };
  return a.trained_elements() == b.trained_elements() && a.frozen_from() == b.frozen_from() &&
         same(a.groups(), b.groups()) && same(a.shards(), b.shards());
}

}  // namespace

ShardTable::ShardTable(const job::Job& job, const Timeouts& timeouts, ServiceMetrics& metrics, const TimeSource& time,
                       Hooks hooks)
    : job_(job),
      timeouts_(timeouts),
      metrics_(metrics),
      time_(time),
      hooks_(std::move(hooks)),
      builder_(job_,
               {.timeouts = timeouts,
                .keeps_snapshots = hooks_.on_stores != nullptr,
                .on_unpinned = hooks_.on_unpinned,
                .on_seeded = hooks_.on_seeded,
                .open_database = hooks_.open_database},
               metrics, time),
      cuts_(hosts_, metrics, time, hooks_.on_cut),
      grants_(job_.limits().streams_max(), timeouts.worker_dead(), time) {}

ShardTable::~ShardTable() = default;

rpc::FrameLimits ShardTable::frame_limits() const {
  constexpr size_t kNumbers = 16;  // of the frame itself, which may be repeated
  return {.fields_max = kItemsMax + kNumbers,
          .header_bytes_max = kHeaderBytesMax + hosts_.size() * kHeaderBytesOfShard};
}

size_t ShardTable::ordinary_header_bytes() const { return kOrdinaryHeaderBytes + hosts_.size() * kHeaderBytesOfShard; }

std::optional<absl::Status> ShardTable::Receive(Peer& peer, const wire::WorkerFrame& frame,
                                                const rpc::Payload& payload) {
  if (absl::Status shape = CheckShape(frame, payload.size()); !shape.ok()) return shape;
  absl::Status valid = CheckFrame(frame);
  // Whoever opens a stream to a server that has come back may not have heard of the new map yet; it will.
  const bool opens = !callers_.contains(&peer);
  if (opens && absl::IsFailedPrecondition(valid) && JobId(frame.job()) == identity_.job) {
    valid = absl::UnavailableError(absl::StrCat(valid.message(), "; fetch the shard map and try again"));
  }
  rpc::PayloadCutter payloads(payload);
  size_t asked = 0;
  for (const wire::WorkerItem& item : frame.items()) {
    asked += static_cast<size_t>(item.pull().shards_size());
    // Taken in any case: what follows is the next item's.
    rpc::Payload own = payloads.Next(item.payload_bytes());
    if (item.has_pull() && AsksTooMuch(peer, item, asked)) continue;
    std::optional<absl::Status> end = Receive(peer, item, std::move(own), valid);
    if (end.has_value()) return end;
  }
  return std::nullopt;
}

std::optional<absl::Status> ShardTable::Receive(Peer& peer, const wire::WorkerItem& item, rpc::Payload payload,
                                                const absl::Status& valid) {
  const auto caller = callers_.find(&peer);
  if (caller == callers_.end()) {
    if (!valid.ok()) return valid;
    if (!item.has_hello()) return absl::InvalidArgumentError("the first item of a stream must be a Hello");
    if (absl::Status opened = Open(peer, item.hello()); !opened.ok()) return opened;
    return std::nullopt;
  }
  if (item.has_hello()) return absl::InvalidArgumentError("a second Hello on one stream");
  if (item.body_case() == wire::WorkerItem::BODY_NOT_SET) {
    return absl::InvalidArgumentError("item has no body; allowed are push, pull, release and goodbye");
  }
  if (!valid.ok()) {
    Refuse(peer, item, valid);
  } else if (item.has_push()) {
    Push(caller->second, item.push(), std::move(payload));
  } else if (item.has_pull()) {
    Pull(caller->second, item.pull());
  } else if (item.has_release()) {
    Release(caller->second, item.release());
  } else if (item.has_goodbye()) {
    return absl::OkStatus();
  }
  return std::nullopt;
}

absl::Status ShardTable::CheckJob(JobId job) const {
  if (job == identity_.job) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("message of job ", job.value(), "; this server works for job ", identity_.job.value()));
}

absl::Status ShardTable::CheckFrame(const wire::WorkerFrame& frame) const {
  if (installed_.empty()) return absl::UnavailableError("the server has no shards yet; try again");
  if (feed_ != nullptr) return absl::UnavailableError("the server is the backup of another; try again");
  if (absl::Status status = CheckJob(JobId(frame.job())); !status.ok()) return status;
  const Generation generation(frame.generation());
  if (generation < generation_) {
    return absl::FailedPreconditionError(
        absl::StrCat("frame of shard map generation ", generation.value(), "; the server is at ", generation_.value()));
  }
  if (generation > generation_) {
    return absl::UnavailableError(absl::StrCat("frame of shard map generation ", generation.value(),
                                               "; the server is still at ", generation_.value(), "; try again"));
  }
  return absl::OkStatus();
}

// --- Streams ----------------------------------------------------------------------------------------------------

absl::Status ShardTable::Open(Peer& peer, const wire::Hello& hello) {
  if (absl::Status speaks = CheckProtocol("a client", ProtocolOf(hello)); !speaks.ok()) return speaks;
  if (hello.role() != wire::ROLE_WORKER && hello.role() != wire::ROLE_READER) {
    return absl::InvalidArgumentError(absl::StrCat("hello has role ", hello.role(), "; allowed are 1 and 2"));
  }
  if (hello.role() == wire::ROLE_WORKER) {
    if (absl::Status allowed = peer.MayTrain(); !allowed.ok()) return allowed;
  }
  if (hello.pull_encoding() < 0 || hello.pull_encoding() > wire::ENCODING_BF16) {
    return absl::InvalidArgumentError(
        absl::StrCat("hello has pull_encoding ", hello.pull_encoding(), "; allowed are 1 (fp32) and 2 (bf16)"));
  }
  Caller caller{&peer, {WorkerId(hello.worker()), Incarnation(hello.incarnation())}, false, 1};
  caller.reader = hello.role() == wire::ROLE_READER;
  if (hello.pull_encoding() == wire::ENCODING_BF16) caller.pull_encoding = codec::Encoding::kBf16;
  // A sub-push that waits costs staging: the job's window is the most that was planned for.
  caller.window = std::clamp<uint32_t>(hello.window(), 1, job_.wire().window());
  wire::ServerItem item;
  wire::Welcome& welcome = *item.mutable_welcome();
  welcome.set_window(caller.window);
  welcome.set_chunk_bytes_max(job_.wire().chunk_bytes());
  SetProtocol(welcome);
  if (!caller.reader) {
    if (absl::Status joined = Join(caller, hello, welcome); !joined.ok()) return joined;
  } else {
    for (const auto& [id, host] : hosts_) *welcome.add_shards() = host->Greet();
  }
  // A token is good once, and a Hello that is refused must not use it up.
  grants_.Take(hello.segment_token(), caller);
  welcome.set_shared_memory(caller.shared_memory);
  callers_[&peer] = caller;
  peer.Send(item);
  return absl::OkStatus();
}

absl::Status ShardTable::Join(const Caller& caller, const wire::Hello& hello, wire::Welcome& welcome) {
  // A server that has come back: those who follow it are members, and it has not heard so yet.
  if (!members_known_) return absl::UnavailableError("the server does not know its members yet; try again");
  if (absl::Status status = CheckCount("hello", hello.shards_size()); !status.ok()) return status;
  std::map<uint32_t, uint64_t> answered;
  uint64_t largest = std::max(hello.first_clock(), hello.clock());
  for (const wire::ShardClock& clock : hello.shards()) {
    largest = std::max(largest, clock.last_answered());
    if (!hosts_.contains(clock.shard())) return UnknownShard(clock.shard());
    answered[clock.shard()] = clock.last_answered();
  }
  if (largest > kClockMax) {
    return absl::InvalidArgumentError(absl::StrCat("hello has clock ", largest, "; allowed is at most ", kClockMax));
  }
  const auto event = [&](uint32_t shard) {
    return HelloEvent{caller.sender, Clock64(hello.first_clock()), Sequence(std::max(answered[shard], hello.clock()))};
  };
  // All shards have the same members, but each knows by itself how far they are. If any shard refuses, none may have
  // changed: the worker's earlier stream goes on.
  for (const auto& [id, host] : hosts_) {
    if (absl::Status status = host->engine().CheckHello(event(id)); !status.ok()) return status;
  }
  for (const auto& [id, host] : hosts_) *welcome.add_shards() = host->Hello(caller, event(id)).value();
  Supersede(caller);
  return absl::OkStatus();
}

void ShardTable::Supersede(const Caller& next) {
  EndWhere([&](const Caller& caller) { return !caller.reader && caller.sender == next.sender; },
           absl::AbortedError("the worker has opened another stream"));
}

void ShardTable::EndWhere(const std::function<bool(const Caller&)>& which, const absl::Status& status) {
  std::vector<Peer*> ended;
  for (const auto& [peer, caller] : callers_) {
    if (which(caller)) ended.push_back(caller.peer);
  }
  for (Peer* peer : ended) {
    Closed(*peer);
    peer->End(status);
  }
}

void ShardTable::Closed(Peer& peer) {
  const auto found = callers_.find(&peer);
  if (found == callers_.end()) return;
  // Before the chunks that it was lent are let go and written again.
  if (found->second.loan != nullptr) found->second.loan->TakeBack();
  for (const auto& [id, host] : hosts_) host->Disconnected(found->second);
  callers_.erase(found);
}

// --- Frames -----------------------------------------------------------------------------------------------------

absl::Status ShardTable::UnknownShard(uint32_t shard) const {
  if (hosts_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard ", shard, " is not here; server ", identity_.server.value(), " has none"));
  }
  return absl::InvalidArgumentError(absl::StrCat("shard ", shard, " is not here; server ", identity_.server.value(),
                                                 " has ", hosts_.size(), " shards, from ", hosts_.begin()->first,
                                                 " to ", hosts_.rbegin()->first));
}

bool ShardTable::AsksTooMuch(Peer& peer, const wire::WorkerItem& item, size_t asked) {
  const auto caller = callers_.find(&peer);
  if (caller == callers_.end()) return false;
  const size_t allowed = kPullsOfFrame * caller->second.window * hosts_.size();
  if (asked <= allowed) return false;
  Refuse(peer, item,
         absl::ResourceExhaustedError(absl::StrCat("pulls of ", asked, " shards in one frame; allowed are ", allowed)));
  return true;
}

absl::Status ShardTable::CheckCount(absl::string_view what, int named) const {
  if (static_cast<size_t>(named) <= hosts_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " names ", named, " shards; allowed are the ", hosts_.size(), " of this server, each once"));
}

void ShardTable::Push(const Caller& caller, const wire::PushChunk& chunk, rpc::Payload payload) {
  const auto host = hosts_.find(chunk.shard());
  absl::Status wrong = host == hosts_.end() ? UnknownShard(chunk.shard()) : absl::OkStatus();
  if (wrong.ok() && chunk.has_segment_offset()) {
    absl::StatusOr<rpc::Payload> found = FindInSegment(caller, chunk, payload);
    wrong = found.status();
    if (found.ok()) payload = *std::move(found);
  }
  if (wrong.ok()) return host->second->Push(caller, chunk, std::move(payload));
  wire::WorkerItem item;
  *item.mutable_push() = chunk;
  Refuse(*caller.peer, item, wrong);
}

void ShardTable::Pull(const Caller& caller, const wire::Pull& pull) {
  if (absl::Status status = CheckCount("pull", pull.shards_size()); !status.ok()) {
    return Refuse(*caller.peer, wire::WorkerItem(), status);
  }
  if (pull.averaged() && (!caller.reader || job_.optimizer().ema() == 0)) {
    const absl::string_view why = caller.reader ? "the job keeps none (optimizer.ema)" : "only readers may have them";
    return Refuse(*caller.peer, wire::WorkerItem(),
                  absl::FailedPreconditionError(absl::StrCat("a pull of averaged weights; ", why)));
  }
  for (const wire::ShardVersion& wanted : pull.shards()) {
    if (hosts_.contains(wanted.shard())) continue;
    return Refuse(*caller.peer, wire::WorkerItem(), UnknownShard(wanted.shard()));
  }
  for (const wire::ShardVersion& wanted : pull.shards()) {
    std::optional<Version> known;
    if (wanted.has_known()) known = FromWire(wanted.known());
    hosts_[wanted.shard()]->Pull(caller, {caller.sender, PullId(pull.id()), Clock64(pull.clock()), caller.window},
                                 known, pull.averaged());
  }
}

void ShardTable::Refuse(Peer& peer, const wire::WorkerItem& item, const absl::Status& status) {
  metrics_.Refused(status.code());
  wire::ServerItem answer;
  wire::Refused& refused = *answer.mutable_refused();
  refused.set_code(static_cast<uint32_t>(status.code()));
  refused.set_message(std::string(status.message()));
  refused.set_shard(item.push().shard());
  refused.set_sequence(item.push().sequence());
  peer.Send(answer);
}

void ShardTable::Release(const Caller& caller, const wire::Release& release) {
  if (absl::Status status = CheckCount("release", release.shards_size()); !status.ok()) {
    return Refuse(*caller.peer, wire::WorkerItem(), status);
  }
  for (const uint32_t shard : release.shards()) caller.peer->Release(ShardId(shard), PullId(release.id()));
}

absl::StatusOr<SegmentGrant> ShardTable::GrantSegments(const wire::SegmentRequest& request,
                                                       std::shared_ptr<const shm::MappedSegment> push_segment) {
  if (installed_.empty() || feed_ != nullptr) {
    return absl::UnavailableError("the server has no shards to share yet; try again");
  }
  if (absl::Status status = CheckJob(JobId(request.job())); !status.ok()) return status;
  return grants_.Add({WorkerId(request.worker()), Incarnation(request.incarnation())}, hosts_, std::move(push_segment));
}

// --- Snapshots --------------------------------------------------------------------------------------------------

std::optional<ShardSnapshot> ShardTable::TakeSnapshot(ShardId shard) const {
  const auto host = hosts_.find(shard.value());
  if (host == hosts_.end() || !host->second->seeded()) return std::nullopt;
  return host->second->Snapshot();
}

absl::StatusOr<wire::BeginCheckpointReply> ShardTable::BeginCheckpoint(const wire::BeginCheckpointRequest& request) {
  if (installed_.empty() || feed_ != nullptr) {
    return absl::UnavailableError("a checkpoint before shards: install the shards first");
  }
  if (absl::Status status = CheckCallee(request.job(), request.server_incarnation()); !status.ok()) return status;
  if (Generation(request.generation()) != generation_) {
    return absl::FailedPreconditionError(absl::StrCat("checkpoint of shard map generation ", request.generation(),
                                                      "; the server is at ", generation_.value()));
  }
  return cuts_.Begin(request);
}

void ShardTable::SnapshotDone(ShardId shard, const absl::StatusOr<KeptSnapshot>& kept) {
  const auto host = hosts_.find(shard.value());
  if (host == hosts_.end()) return;  // it has moved meanwhile
  if (kept.ok()) {
    kept_[shard] = *kept;
    snapshot_errors_.erase(shard);
    metrics_.snapshots.Add();
  } else {
    snapshot_errors_[shard] = std::string(kept.status().message());
    metrics_.snapshots_failed.Add();
  }
  host->second->FirstSnapshotTried();
}

// --- Time -------------------------------------------------------------------------------------------------------

void ShardTable::Tick() {
  grants_.ForgetOld();
  size_t waiting = 0, held = 0, live = 0, pinned = 0, references = 0;
  uint64_t elements = 0, optimizer_elements = 0;
  double steps_ahead = 0;
  for (const auto& [id, host] : hosts_) {
    host->Tick();
    const ShardHost::Load load = host->load();
    waiting += load.waiting_pulls;
    pinned += load.pinned_versions;
    references += load.reference_versions;
    steps_ahead = std::max(steps_ahead, load.steps_ahead);
    held += host->engine().held_pushes();
    live = std::max(live, host->engine().live_workers());
    elements += host->config().extent.size();
    for (const std::string& array : host->arrays()) optimizer_elements += ArrayElements(host->config().extent, array);
  }
  const wire::ServerProgress now = progress().report;
  metrics_.version_min.Set(static_cast<double>(now.version_min()));
  metrics_.version_max.Set(static_cast<double>(now.version_max()));
  metrics_.shards.Set(static_cast<double>(hosts_.size()));
  metrics_.weight_bytes.Set(static_cast<double>(elements * sizeof(float)));
  metrics_.optimizer_bytes.Set(static_cast<double>(optimizer_elements * sizeof(float)));
  metrics_.staging_bytes.Set(static_cast<double>(now.staging_bytes()));
  if (budget_ != nullptr) metrics_.staging_bytes_max.Set(static_cast<double>(budget_->bytes_max()));
  metrics_.waiting_pulls.Set(static_cast<double>(waiting));
  metrics_.pinned_versions.Set(static_cast<double>(pinned));
  metrics_.reference_versions.Set(static_cast<double>(references));
  metrics_.prediction_steps.Set(steps_ahead);
  metrics_.held_pushes.Set(static_cast<double>(held));
  metrics_.live_workers.Set(static_cast<double>(live));
  metrics_.resident_bytes.Set(static_cast<double>(ResidentBytes()));
  if (!now.durable()) return;
  absl::Time oldest = absl::InfiniteFuture();
  uint64_t bytes = 0;
  for (const auto& [shard, kept] : kept_) {
    oldest = std::min(oldest, kept.taken);
    bytes += kept.bytes;
  }
  metrics_.snapshot_taken.Set(absl::ToDoubleSeconds(oldest - absl::UnixEpoch()));
  metrics_.snapshot_bytes.Set(static_cast<double>(bytes));
}

void ShardTable::Retry() {
  for (const auto& [id, host] : hosts_) host->Retry();
}

ShardTable::Progress ShardTable::progress() const {
  Progress progress;
  progress.follows = feed_ != nullptr;
  wire::ServerProgress& report = progress.report;
  report.set_seeded(!hosts_.empty());
  for (const auto& [id, host] : hosts_) {
    const uint64_t version = host->version().number;
    const bool first = id == hosts_.begin()->first;
    report.set_version_min(first ? version : std::min(report.version_min(), version));
    report.set_version_max(std::max(report.version_max(), version));
    report.set_seeded(report.seeded() && host->seeded());
  }
  report.set_durable(!hosts_.empty() && kept_.size() == hosts_.size());
  if (!snapshot_errors_.empty()) report.set_snapshot_error(snapshot_errors_.begin()->second);
  if (budget_ != nullptr) report.set_staging_bytes(budget_->used());
  if (const auto cut = cuts_.progress(); cut.checkpoint() != 0) *report.mutable_checkpoint() = cut;
  if (log_ != nullptr && log_->progress().attachment() != 0) *report.mutable_backup() = log_->progress();
  return progress;
}

// --- The server that is followed --------------------------------------------------------------------------------

void ShardTable::OpenLog(absl::Time serve_from, const std::vector<ShardId>& shards, uint64_t move) {
  ReplicaLog::Options options;
  options.timeouts = timeouts_;
  options.move = move;
  options.attachments_before = attachments_;
  options.take = [this](ShardId shard) { return TakeSnapshot(shard); };
  options.members = [this](ShardId shard) { return hosts_.at(shard.value())->MemberClocks(); };
  options.checksum = [this](ShardId shard) { return hosts_.at(shard.value())->Checksum(); };
  // Twice what a worker may have unanswered, for those who joined with a larger window.
  options.answers_max = 2 * size_t{job_.wire().window()};
  options.notify = [this](ShardId shard, const Sender& sender, absl::Duration waited, const std::string& awaited) {
    hosts_.at(shard.value())->Notify(sender, waited, awaited);
  };
  if (move == 0) {
    options.on_first_in_step = [this] {
      for (const auto& [id, host] : hosts_) host->FirstSnapshotTried();
    };
  }
  options.on_served_again = [this] { Retry(); };
  options.serve_from = serve_from;
  for (const ShardId shard : shards) {
    const ShardHost& host = *hosts_.at(shard.value());
    options.shards.push_back({identity_.job, shard, host.config().extent, host.arrays()});
  }
  log_ = std::make_unique<ReplicaLog>(std::move(options), metrics_, time_);
  for (const ShardId shard : shards) hosts_.at(shard.value())->SetJournal(log_.get());
}

absl::Status ShardTable::AttachBackup(ReplicaSink& sink, const wire::BackupHello& hello) {
  if (absl::Status status = CheckJob(JobId(hello.job())); !status.ok()) return status;
  if (installed_.empty()) return absl::UnavailableError("the server has no shards yet; try again");
  if (feed_ != nullptr) return absl::UnavailableError("the server is a backup itself; try again");
  if (ServerId(hello.server()) != identity_.server ||
      Incarnation(hello.server_incarnation()) != identity_.incarnation) {
    return absl::FailedPreconditionError(
        absl::StrCat("a backup of server ", hello.server(), ", incarnation ", hello.server_incarnation(), "; this is ",
                     identity_.server.value(), ", incarnation ", identity_.incarnation.value()));
  }
  if (hello.move() > 0) return AttachTaker(sink, hello);
  if (log_ == nullptr || log_->move() > 0) {
    return absl::FailedPreconditionError("this server is not replicated (durability.mode)");
  }
  return log_->Attach(sink, Incarnation(hello.backup_incarnation()));
}

// --- The backup -------------------------------------------------------------------------------------------------

std::optional<wire::BackupHello> ShardTable::BeginFollowing() {
  if (taken_ != nullptr) return BeginTaking();
  if (feed_ == nullptr) return std::nullopt;
  begins_ = true;
  wire::BackupHello hello;
  hello.set_job(identity_.job.value());
  hello.set_server(backup_.server());
  hello.set_server_incarnation(backup_.backup_of().incarnation());
  hello.set_backup_incarnation(identity_.incarnation.value());
  return hello;
}

absl::Status ShardTable::Follow(const wire::ReplicaFrame& frame, const rpc::Payload& payload) {
  if (taken_ != nullptr) return FollowTaken(frame, payload);
  if (feed_ == nullptr) return absl::AbortedError("this server is no backup any more");
  // The feed is not replaced earlier: a server that refuses the new stream may need what the old one brought.
  if (std::exchange(begins_, false) && (feed_->handled() > 0 || hosts_.empty())) {
    feed_ = std::make_unique<BackupFeed>(identity_.job, BackupFeed::Hosts(), time_);
    hosts_.clear();
    absl::StatusOr<ShardBuilder::Built> built = builder_.Build(backup_, *budget_);
    if (!built.ok()) return built.status();
    hosts_ = std::move(built->shards);
    feed_ = std::make_unique<BackupFeed>(identity_.job, hosts_, time_);
  }
  return feed_->Receive(frame, payload);
}

bool ShardTable::IsPromotion(const wire::InstallShardsRequest& request) const {
  if (!request.promote() || installed_.empty() || Generation(request.generation()) <= generation_) return false;
  wire::InstallShardsRequest here;
  return here.ParseFromString(installed_) && SameShards(here, request);
}

absl::Status ShardTable::Promote(const wire::InstallShardsRequest& request) {
  kill_point::Passed("promote");
  if (feed_ != nullptr) {
    if (!feed_->in_step()) {
      return absl::DataLossError("this backup does not have all that its server has answered, and cannot take over");
    }
    for (const auto& [id, host] : hosts_) host->Promote(Lineage(request.restore_lineage()));
    const absl::Time serve_from = feed_->heard() + timeouts_.lease();
    feed_.reset();
    backup_.Clear();
    hooks_.on_backup(nullptr);
    OpenLog(serve_from, ShardsHere(), 0);
    log::Info("this backup takes over as server ", request.server(), " with ", hosts_.size(),
              " shards, under generation ", request.generation());
  }
  EndWhere([](const Caller&) { return true; }, absl::UnavailableError("the shard map has changed; fetch it anew"));
  generation_ = Generation(request.generation());
  installed_ = WhatIsInstalled(request);
  return absl::OkStatus();
}

}  // namespace slackline::ps
