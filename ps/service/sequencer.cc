#include "ps/service/sequencer.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/logging.h"
#include "common/rpc/channel.h"
#include "common/rpc/connections.h"
#include "common/shm/descriptor_socket.h"
#include "common/shm/host.h"
#include "ps/base/readable.h"
#include "ps/shard/shard_settings.h"

namespace slackline::ps {
namespace {

// How long streams and control calls may take to end.
constexpr absl::Duration kShutdown = absl::Milliseconds(500);

std::chrono::system_clock::time_point After(absl::Duration wait) {
  return std::chrono::system_clock::now() + absl::ToChronoMicroseconds(wait);
}

int TicksPerHeartbeat(const SequencerOptions& options) {
  const absl::Duration every = TickEvery(options.job, options.timeouts);
  return std::max(1, static_cast<int>(absl::FDivDuration(options.timeouts.heartbeat, every)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Sequencer>> Sequencer::Start(SequencerOptions options, Metrics& metrics,
                                                            const TimeSource& time) {
  std::unique_ptr<Sequencer> sequencer(new Sequencer(std::move(options), metrics, time));
  if (absl::Status status = sequencer->Listen(); !status.ok()) return status;
  return sequencer;
}

Sequencer::Sequencer(SequencerOptions options, Metrics& metrics, const TimeSource& time)
    : options_(std::move(options)),
      ticks_per_heartbeat_(TicksPerHeartbeat(options_)),
      metrics_(metrics),
      time_(time),
      table_(options_.job, options_.timeouts, metrics_, time_, MakeHooks()) {}

ShardTable::Hooks Sequencer::MakeHooks() {
  return {.on_unpinned = [flag = unpinned_] { flag->store(true); },
          .on_seeded =
              [this] {
                if (keeper_ != nullptr) keeper_->Wake();
                if (table_.log() != nullptr) table_.log()->Seeded();
                LookForNews();
              },
          .on_stores = [this](std::vector<StoredShard> stores) { KeepSnapshots(std::move(stores)); },
          .on_stores_gone =
              [this](const std::vector<ShardId>& shards) {
                if (keeper_ != nullptr) keeper_->Remove(shards);
              },
          .on_cut = [this](CheckpointCut cut) { WriteCheckpoint(std::move(cut)); },
          .on_backup = [this](const wire::ReplicationSource* source) { replicas_->OnBackup(source); }};
}

void Sequencer::WriteCheckpoint(CheckpointCut cut) {
  if (stopping_) return;
  if (writer_ == nullptr) {
    writer_ = std::make_unique<CheckpointWriter>(
        [this, folder = std::filesystem::path(cut.folder).parent_path().string()](
            uint64_t checkpoint, uint32_t attempt, const CheckpointWriter::Written& written) {
          metrics_.checkpoint_disk.Look(folder);
          mailbox_->Post([this, checkpoint, attempt, written] { table_.cuts().Done(checkpoint, attempt, written); });
        });
  }
  writer_->Write(std::move(cut));
}

void Sequencer::CheckpointHeard(uint64_t checkpoint) {
  mailbox_->Post([this, checkpoint] { table_.cuts().Heard(checkpoint); });
}

void Sequencer::BackupReleased(uint64_t attachment) {
  mailbox_->Post([this, attachment] {
    if (table_.log() != nullptr) table_.log()->Released(attachment);
  });
}

void Sequencer::KeepSnapshots(std::vector<StoredShard> stores) {
  if (stopping_) return;
  if (keeper_ != nullptr) return keeper_->Add(std::move(stores));
  SnapshotKeeper::Options options;
  options.interval = absl::Seconds(options_.job.durability().snapshot_every_s());
  metrics_.snapshot_interval_seconds.Set(absl::ToDoubleSeconds(options.interval));
  options.timeout = options_.timeouts.worker_dead();
  options.take = [this](ShardId shard) { return table_.TakeSnapshot(shard); };
  options.done = [this](ShardId shard, const absl::StatusOr<KeptSnapshot>& kept) {
    table_.SnapshotDone(shard, kept);
    LookForNews();
  };
  keeper_ = std::make_unique<SnapshotKeeper>(std::move(options), std::move(stores), *mailbox_, metrics_, time_);
}

absl::Status Sequencer::Listen() {
  grpc::ServerBuilder builder;
  rpc::SetDataServerArguments(builder);
  // Connections that say nothing must not use up the descriptors, which snapshots and checkpoints need, too.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(options_.handshake)));
  builder.AddListeningPort(options_.listen, options_.security.server_credentials(), &port_);
  ListenLocally(builder);
  // Control calls are rare: one thread waits for them, and a second while one is busy.
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
  queue_ = builder.AddCompletionQueue();
  mailbox_ = std::make_unique<Mailbox>(queue_.get(), static_cast<Event*>(&mail_event_));
  control_ =
      std::make_unique<ControlService>(*mailbox_, table_, options_.timeouts.worker_dead(), options_.security.guard(),
                                       [this](const wire::StopRequest& request) { Stop(request); });
  builder.RegisterService(&service_);
  builder.RegisterService(control_.get());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port_ == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options_.listen));
  }
  if (local_port_ == 0) local_.Clear();
  AwaitStream();
  replicas_ = std::make_unique<ReplicaStreams>(table_, service_, queue_.get(), options_.security, time_,
                                               options_.timeouts.worker_dead());
  SetTick();
  thread_ = std::thread([this] { Run(); });
  if (local_.host().empty() || options_.job.wire().same_host() != job::Wire::SHARED_MEMORY) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<MemoryDesk>> desk = MemoryDesk::Open(*mailbox_, table_, options_.timeouts.notice());
  if (desk.ok()) {
    desk_ = *std::move(desk);
    local_.set_memory_socket(desk_->name());
  } else {
    log::Warning("cannot share memory with workers on this host: ", std::string(desk.status().message()));
  }
  return absl::OkStatus();
}

void Sequencer::ListenLocally(grpc::ServerBuilder& builder) {
  const std::string host = shm::SocketScope();
  if (host.empty() || options_.job.wire().same_host() == job::Wire::TCP) return;
  const absl::StatusOr<std::string> name = shm::RandomAbstractName();
  if (!name.ok())
    return log::Warning("cannot open a Unix socket for workers on this host: ", std::string(name.status().message()));
  builder.AddListeningPort(rpc::UnixAddress(*name), options_.security.server_credentials(), &local_port_);
  local_.set_host(host);
  local_.set_socket(*name);
}

Sequencer::~Sequencer() {
  desk_.reset();
  if (thread_.joinable()) {
    mailbox_->Post([this] {
      stopping_ = true;
      cut_at_ = time_.Now() + kShutdown;
      EndStreams(absl::UnavailableError("the server is stopping"));
      if (snapshot_at_end_ && keeper_ != nullptr) keeper_->KeepAtEnd();
    });
    StopWriters();
    // Returns when all calls are gone; the sequencer goes on finishing them meanwhile.
    server_->Shutdown(After(kShutdown));
    // Its streams may still begin operations, which a queue that is shut down does not take.
    mailbox_->Post([this] {
      mailbox_->Close();
      draining_ = true;
      tick_.Cancel();
    });
    thread_.join();
  } else if (server_ != nullptr) {
    server_->Shutdown();
    queue_->Shutdown();
  }
}

void Sequencer::StopWriters() {
  // While the sequencer still answers what the keeper asks it.
  struct Writers {
    std::unique_ptr<SnapshotKeeper> keeper;
    std::unique_ptr<CheckpointWriter> writer;
  };
  auto writers = std::make_shared<Writers>();
  const auto taken = mailbox_->Ask<bool>(
      [this, writers] {
        *writers = {std::move(keeper_), std::move(writer_)};
        return true;
      },
      options_.timeouts.worker_dead());
  if (!taken.ok()) return;
  writers->writer.reset();
  writers->keeper.reset();
}

absl::Status Sequencer::SetIdentity(const ServerIdentity& identity) {
  return mailbox_
      ->Ask<bool>(
          [this, identity] {
            table_.SetIdentity(identity);
            return true;
          },
          options_.timeouts.worker_dead())
      .status();
}

absl::StatusOr<ShardTable::Progress> Sequencer::progress() {
  return mailbox_->Ask<ShardTable::Progress>([this] { return table_.progress(); }, options_.timeouts.heartbeat / 4);
}

void Sequencer::LookForNews() {
  const wire::ServerProgress now = table_.progress().report;
  if (now.seeded() == seeded_ && now.durable() == durable_) return;
  seeded_ = now.seeded();
  durable_ = now.durable();
  news_.Raise();
}

// --- The sequencer ----------------------------------------------------------------------------------------------

void Sequencer::Run() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) {
    static_cast<Event*>(tag)->Happened(ok);
    if (unpinned_->exchange(false)) table_.Retry();
    if (!draining_ || drained_ || awaiting_ || !streams_.empty() || !replicas_->quiet()) continue;
    drained_ = true;
    queue_->Shutdown();
  }
}

void Sequencer::OnTick() {
  if (draining_) return;
  if (!stopping_) table_.Tick();
  if (++ticks_ >= ticks_per_heartbeat_) {
    ticks_ = 0;
    OnHeartbeat();
  }
  SetTick();
}

void Sequencer::OnHeartbeat() {
  if (!stopping_) {
    EndSilentStreams();
  } else if (time_.Now() >= cut_at_) {
    rpc::CutConnectionsFrom({static_cast<uint16_t>(port_), local_.socket()});
  }
  // A stream that ends leaves the set.
  for (WorkerStream* stream : std::vector<WorkerStream*>(streams_.begin(), streams_.end())) stream->Tick();
  replicas_->Tick();
  metrics_.streams.Set(static_cast<double>(streams_.size()));
}

void Sequencer::SetTick() {
  tick_.Set(queue_.get(), After(options_.timeouts.heartbeat / ticks_per_heartbeat_), static_cast<Event*>(&tick_event_));
}

void Sequencer::Stop(const wire::StopRequest& request) {
  if (request.remove_snapshots() && keeper_ != nullptr) keeper_->RemoveAtEnd();
  EndStreams(absl::UnavailableError(absl::StrCat("the server is stopping: ", request.reason())));
  if (options_.on_stop != nullptr) options_.on_stop(request.reason());
}

// --- Streams ----------------------------------------------------------------------------------------------------

void Sequencer::AwaitStream() {
  auto* stream = new WorkerStream(*this, table_, metrics_);  // deleted in Finished()
  awaiting_ = true;
  stream->Request(service_, queue_.get());
}

absl::Status Sequencer::Accepted(WorkerStream& stream) {
  streams_.insert(&stream);
  awaiting_ = false;
  stream.accepted_at = time_.Now();
  if (stopping_) return absl::UnavailableError("the server is stopping");
  AwaitStream();
  if (absl::Status status = stream.Identify(options_.security.guard()); !status.ok()) return status;
  if (streams_.size() > options_.job.limits().streams_max()) {
    return absl::ResourceExhaustedError(absl::StrCat("the server has ", streams_.size() - 1, " streams; allowed are ",
                                                     options_.job.limits().streams_max()));
  }
  return absl::OkStatus();
}

void Sequencer::Finished(WorkerStream& stream) {
  if (streams_.erase(&stream) == 0) awaiting_ = false;
  delete &stream;
}

// Frames that take long to parse get one part in kParts of the sequencer's time, those of all streams together.
absl::Duration Sequencer::WaitForTurn(absl::Duration cost) {
  constexpr int kParts = 20;
  const absl::Time now = time_.Now();
  const absl::Time turn = std::max(now, turn_at_);
  turn_at_ = turn + kParts * cost;
  return turn - now;
}

// A stream without a Hello holds a place that a worker may need.
void Sequencer::EndSilentStreams() {
  const absl::Time since = time_.Now() - options_.timeouts.worker_dead();
  std::vector<WorkerStream*> silent;
  for (WorkerStream* stream : streams_) {
    if (!stream->heard && stream->accepted_at < since) silent.push_back(stream);
  }
  for (WorkerStream* stream : silent) {
    stream->End(
        absl::DeadlineExceededError(absl::StrCat("no Hello within ", Readable(options_.timeouts.worker_dead()))));
  }
}

void Sequencer::EndStreams(const absl::Status& status) {
  for (WorkerStream* stream : std::vector<WorkerStream*>(streams_.begin(), streams_.end())) stream->End(status);
  replicas_->Close(status);
}

}  // namespace slackline::ps
