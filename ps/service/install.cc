// What the scheduler gives a server: its shards, and the set of live workers.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "common/counted.h"
#include "common/kill_point.h"
#include "common/logging.h"
#include "ps/base/readable.h"
#include "ps/service/shard_table.h"
#include "ps/shard/engine_config.h"
#include "ps/shard/optimizer_config.h"
#include "ps/shard/shard_parts.h"

namespace slackline::ps {
namespace {

// How many pushes of so many workers a shard may have to hold at once, or it would stop for good.
uint64_t PushesHeld(const job::Job& job, uint64_t workers) {
  switch (job.consistency().mode()) {
    case job::Consistency::ASYNC:
    case job::Consistency::SSP:
      return 1;
    case job::Consistency::BSP:
    case job::Consistency::QUORUM:
      // All but one have sent what the window allows, and the step waits for that one's.
      return (workers - 1) * job.wire().window() + 1;
    case job::Consistency::SOFTSYNC:
      return std::max<uint64_t>(1, workers / job.consistency().softsync_n());
  }
  return 1;
}

uint64_t Bytes(const wire::ShardSpec& spec) { return (spec.end() - spec.begin()) * sizeof(float); }

uint64_t BytesOfAll(const wire::InstallShardsRequest& request) {
  uint64_t bytes = 0;
  for (const wire::ShardSpec& spec : request.shards()) bytes += Bytes(spec);
  return bytes;
}

// `bytes`: of all shards of the server.
uint64_t StagingBytesMax(const job::Job& job, uint64_t bytes, uint64_t workers) {
  if (job.limits().staging_bytes_max() > 0) return job.limits().staging_bytes_max();
  // In softsync what is held was answered: its worker may be sending as much as the window allows again.
  const bool softsync = job.consistency().mode() == job::Consistency::SOFTSYNC;
  return bytes * (uint64_t{job.wire().window()} * workers + (softsync ? PushesHeld(job, workers) : 1));
}

uint64_t MachineBytes() {
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Before anything is made for them: memory that is not there would end the process. Sums below cannot overflow then.
absl::Status CheckFits(const wire::InstallShardsRequest& request) {
  const uint64_t machine = MachineBytes();
  uint64_t bytes = 0;
  for (const wire::ShardSpec& spec : request.shards()) {
    const uint64_t elements = spec.end() - spec.begin();
    if (elements > (machine - bytes) / sizeof(float)) {
      return absl::FailedPreconditionError(absl::StrCat("shard ", spec.shard(), " has ", elements,
                                                        " elements of 4 bytes, the shards before it have ", bytes,
                                                        " bytes; this machine has ", machine));
    }
    bytes += elements * sizeof(float);
  }
  return absl::OkStatus();
}

// A segment takes a descriptor for good; these are for connections, files, and what workers share.
constexpr uint64_t kOtherDescriptors = 128;

bool DescriptorsSuffice(const job::Job& job, const wire::InstallShardsRequest& request) {
  rlimit files = {};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return true;
  const uint64_t wanted =
      static_cast<uint64_t>(request.shards_size()) + kOtherDescriptors + 4 * job.cluster().workers();
  if (wanted <= files.rlim_cur) return true;
  log::Warning("cannot share memory with workers on this host: ", request.shards_size(),
               " shards need a descriptor each, ", wanted, " with all others; ", files.rlim_cur,
               " are allowed; raise the limit with ulimit -n");
  return false;
}

}  // namespace

absl::Status ShardTable::Install(const wire::InstallShardsRequest& request) {
  if (absl::Status status = CheckInstall(request); !status.ok()) return status;
  if (IsPromotion(request)) return Promote(request);
  if (IsMove(request)) return Move(request);
  if (request.has_backup_of()) return InstallBackup(request);
  if (!installed_.empty()) return absl::OkStatus();  // the same again
  if (request.promote()) return absl::DataLossError("this process has followed nobody, and cannot take over");
  if (absl::Status status = CheckExtents(request); !status.ok()) return status;
  ForgetTaken();  // before the budget that it borrows
  budget_ = std::make_unique<StagingBudget>(StagingBytesMax(job_, BytesOfAll(request), job_.cluster().workers()));
  std::vector<StoredShard> stores;
  absl::StatusOr<BackupFeed::Hosts> hosts = MakeHosts(request, stores);
  if (!hosts.ok()) return hosts.status();
  hosts_ = *std::move(hosts);
  for (const StoredShard& stored : stores) {
    if (!stored.store->kept().empty()) kept_[stored.shard] = stored.store->kept().front();
  }
  if (!stores.empty()) hooks_.on_stores(std::move(stores));
  generation_ = Generation(request.generation());
  installed_ = WhatIsInstalled(request);
  if (request.replicated()) OpenLog(absl::InfinitePast(), ShardsHere(), 0);
  log::Info("holds ", Counted(hosts_.size(), "shard"), ", ", BytesOfAll(request), " bytes of weights; stages at most ",
            budget_->bytes_max(), " bytes");
  return absl::OkStatus();
}

// Shards are the same wherever their numbers came from; a scheduler that was started again may say something else.
std::string ShardTable::WhatIsInstalled(wire::InstallShardsRequest request) {
  request.clear_restore_lineage();
  request.clear_checkpoint_folder();
  request.clear_promote();
  request.clear_moves();
  return request.SerializeAsString();
}

wire::InstallShardsReply ShardTable::Restored() const {
  std::map<Sender, wire::RestoredWorker> workers;
  for (const auto& [id, host] : hosts_) {
    for (const auto& [sender, restored] : host->engine().restored()) {
      wire::RestoredWorker& worker = workers[sender];
      worker.set_worker(sender.worker.value());
      worker.set_incarnation(sender.incarnation.value());
      worker.set_shards(worker.shards() + 1);
      worker.set_clock_sum(worker.clock_sum() + restored.clock.value());
    }
  }
  wire::InstallShardsReply reply;
  for (auto& [sender, worker] : workers) *reply.add_restored() = std::move(worker);
  return reply;
}

std::vector<ShardId> ShardTable::ShardsHere() const {
  std::vector<ShardId> shards;
  for (const auto& [id, host] : hosts_) shards.push_back(ShardId(id));
  return shards;
}

void ShardTable::MakeBudget(const wire::InstallShardsRequest& request) {
  const uint64_t most = StagingBytesMax(job_, BytesOfAll(request), job_.cluster().workers());
  if (budget_ == nullptr) budget_ = std::make_unique<StagingBudget>(most);
  budget_->Allow(most);
}

absl::StatusOr<BackupFeed::Hosts> ShardTable::MakeHosts(const wire::InstallShardsRequest& request,
                                                        std::vector<StoredShard>& stores) {
  const bool shared_memory = job_.wire().same_host() == job::Wire::SHARED_MEMORY && DescriptorsSuffice(job_, request);
  BackupFeed::Hosts hosts;
  for (const wire::ShardSpec& spec : request.shards()) {
    absl::StatusOr<std::unique_ptr<ShardHost>> host = MakeHost(request, spec, shared_memory, stores);
    if (!host.ok()) {
      return absl::Status(host.status().code(), absl::StrCat("shard ", spec.shard(), ": ", host.status().message()));
    }
    hosts[spec.shard()] = *std::move(host);
  }
  return hosts;
}

absl::Status ShardTable::InstallBackup(const wire::InstallShardsRequest& request) {
  if (feed_ == nullptr && !installed_.empty()) {
    // A scheduler that was started again may not know yet that this one has taken over.
    return absl::UnavailableError("this server holds shards of its own, and is no backup (any more)");
  }
  if (feed_ != nullptr && backup_.SerializeAsString() == request.SerializeAsString()) return absl::OkStatus();
  if (hooks_.on_backup == nullptr) return absl::UnimplementedError("this server can be no backup");
  if (absl::Status status = CheckExtents(request); !status.ok()) return status;
  ForgetTaken();
  feed_ = std::make_unique<BackupFeed>(identity_.job, BackupFeed::Hosts(), time_);
  hosts_.clear();
  budget_ = std::make_unique<StagingBudget>(StagingBytesMax(job_, BytesOfAll(request), job_.cluster().workers()));
  std::vector<StoredShard> stores;
  absl::StatusOr<BackupFeed::Hosts> hosts = MakeHosts(request, stores);
  if (!hosts.ok()) return hosts.status();
  hosts_ = *std::move(hosts);
  backup_ = request;
  generation_ = Generation(request.generation());
  installed_ = request.SerializeAsString();
  feed_ = std::make_unique<BackupFeed>(identity_.job, hosts_, time_);
  log::Info("is the backup of server ", request.server(), " (", request.backup_of().name(), ", ",
            request.backup_of().address(), ")");
  hooks_.on_backup(&backup_.backup_of());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ShardHost>> ShardTable::MakeHost(const wire::InstallShardsRequest& request,
                                                                const wire::ShardSpec& spec, bool shared_memory,
                                                                std::vector<StoredShard>& stores) {
  ShardConfig config = MakeConfig(request, spec);
  config.shared_memory = shared_memory;
  const bool stored = hooks_.on_stores != nullptr && !request.snapshot_folder().empty();
  config.snapshots = stored || request.replicated();
  auto host = std::make_unique<ShardHost>(config, *budget_, metrics_, time_);
  if (request.restore_lineage() == 0 && !request.has_backup_of()) {
    if (absl::Status status = ReadCheckpoint(request, *host); !status.ok()) return status;
  }
  if (!stored) return host;

  StoredShard kept = StoreOf(request, spec, *host);
  absl::StatusOr<std::unique_ptr<SnapshotStore>> store = kept.open();
  if (absl::IsAborted(store.status())) return absl::UnavailableError(store.status().message());
  if (!store.ok() && !absl::IsFailedPrecondition(store.status()) && request.restore_lineage() == 0) {
    log::Error("cannot keep snapshots of shard ", spec.shard(),
               ", so no process can replace this server after a crash: ", std::string(store.status().message()));
    metrics_.snapshots_failed.Add();
    snapshot_errors_[ShardId(spec.shard())] = std::string(store.status().message());
    host->FirstSnapshotTried();
    return host;
  }
  // The scheduler tries again: somebody may make room.
  if (absl::IsResourceExhausted(store.status())) return absl::UnavailableError(store.status().message());
  if (!store.ok()) return store.status();
  if (request.restore_lineage() > 0) {
    absl::StatusOr<std::unique_ptr<ShardHost>> restored =
        RestoreHost(config, **store, Lineage(request.restore_lineage()));
    if (!restored.ok()) return restored.status();
    host = *std::move(restored);
    // It is on disk already.
    host->FirstSnapshotTried();
    kill_point::Passed("restore");
  } else if (!(*store)->kept().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(kept.folder.string(), " has snapshots of this job, ",
                     "but the shard starts from initial weights; the snapshots are not overwritten"));
  }
  kept.store = *std::move(store);
  stores.push_back(std::move(kept));
  return host;
}

StoredShard ShardTable::StoreOf(const wire::InstallShardsRequest& request, const wire::ShardSpec& spec,
                                const ShardHost& host) const {
  StoreOptions options;
  options.folder = std::filesystem::path(request.snapshot_folder()) / absl::StrFormat("shard-%05d", spec.shard());
  options.keep = job_.durability().snapshots_kept();
  options.open = hooks_.open_database;
  const ShardIdentity identity = {JobId(request.job()), host.config().shard, host.config().extent, host.arrays()};
  const auto open = [options, identity] { return SnapshotStore::Open(options, identity); };
  return {host.config().shard, options.folder, nullptr, open};
}

absl::StatusOr<std::unique_ptr<ShardHost>> ShardTable::RestoreHost(const ShardConfig& config,
                                                                   const SnapshotStore& store, Lineage lineage) const {
  absl::Status broken = absl::DataLossError("there is no snapshot to continue from");
  for (const KeptSnapshot& kept : store.kept()) {
    auto host = std::make_unique<ShardHost>(config, *budget_, metrics_, time_);
    broken = host->Restore([&](ShardState& state) { return store.Read(kept.id, state); }, lineage);
    if (broken.ok()) {
      log::Info("shard ", config.shard.value(), " goes on from its snapshot of version ", ToString(kept.version),
                ", taken ", Readable(absl::Now() - kept.taken), " ago, as version ",
                ToString(host->engine().version()));
      return host;
    }
    log::Error("shard ", config.shard.value(), ": the snapshot of version ", ToString(kept.version),
               " is damaged; the server tries the one before it: ", std::string(broken.message()));
  }
  return broken;
}

absl::Status ShardTable::ReadCheckpoint(const wire::InstallShardsRequest& request, ShardHost& host) const {
  if (request.checkpoint_folder().empty()) return absl::OkStatus();
  const absl::StatusOr<std::unique_ptr<checkpoint::ModelReader>> reader =
      checkpoint::ModelReader::Open(request.checkpoint_folder());
  if (absl::IsNotFound(reader.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat(reader.status().message(), ": this server must see the checkpoints of the job"));
  }
  if (!reader.ok()) return reader.status();
  const absl::Status read = host.Restore(
      [&](ShardState& state) { return ReadPart(**reader, host.config().extent, host.arrays(), state); }, Lineage());
  if (!read.ok()) return read;
  log::Info("shard ", host.config().shard.value(), " goes on from ", request.checkpoint_folder(), " as version ",
            ToString(host.engine().version()));
  return absl::OkStatus();
}

absl::Status ShardTable::CheckInstall(const wire::InstallShardsRequest& request) const {
  if (identity_.server == ServerId()) {
    return absl::UnavailableError("the server has not heard its own number yet; try again");
  }
  if (absl::Status status = CheckCallee(request.job(), request.server_incarnation()); !status.ok()) return status;
  if (ServerId(request.server()) != identity_.server) {
    return absl::FailedPreconditionError(
        absl::StrCat("shards for server ", request.server(), "; this is server ", identity_.server.value()));
  }
  const bool replaces = IsPromotion(request) || IsMove(request) || (feed_ != nullptr && request.has_backup_of());
  if (!installed_.empty() && installed_ != WhatIsInstalled(request) && !replaces) {
    return absl::FailedPreconditionError(absl::StrCat("other shards are installed, under generation ",
                                                      generation_.value(), "; this is generation ",
                                                      request.generation(), request.moves() ? "" : ", and no move"));
  }
  return absl::OkStatus();
}

absl::Status ShardTable::CheckCallee(uint64_t job, uint64_t incarnation) const {
  if (JobId(job) != identity_.job) {
    // Before the life: each job counts by itself.
    return incarnation == 0 ? CheckJob(JobId(job)) : absl::UnavailableError(CheckJob(JobId(job)).message());
  }
  if (incarnation == 0 || Incarnation(incarnation) == identity_.incarnation) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("a call for incarnation ", incarnation, "; this is server ",
                                             identity_.server.value(), ", incarnation ",
                                             identity_.incarnation.value()));
}

absl::Status ShardTable::CheckExtents(const wire::InstallShardsRequest& request) const {
  // One that has moved all of its shards away may die before it is told to leave.
  if (request.shards().empty() && !request.moves()) {
    return absl::InvalidArgumentError("no shards; allowed is at least 1");
  }
  std::set<uint32_t> seen;
  for (const wire::ShardSpec& spec : request.shards()) {
    if (spec.begin() > spec.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("shard ", spec.shard(), " begins at ", spec.begin(), " and ends at ", spec.end()));
    }
    if (!seen.insert(spec.shard()).second) {
      return absl::InvalidArgumentError(absl::StrCat("shard ", spec.shard(), " is there twice"));
    }
  }
  if (absl::Status status = CheckParts(request, job_.optimizer().groups_size()); !status.ok()) return status;
  if (absl::Status status = CheckFits(request); !status.ok()) return status;
  if (request.replicated() && job_.consistency().mode() == job::Consistency::SOFTSYNC) {
    return absl::InvalidArgumentError("softsync with backups: it answers a push before it is in a step");
  }
  const uint64_t workers = job_.cluster().workers();
  const uint64_t bytes = BytesOfAll(request), needed = bytes * PushesHeld(job_, workers);
  if (const uint64_t allowed = StagingBytesMax(job_, bytes, workers); allowed < needed) {
    return absl::InvalidArgumentError(
        absl::StrCat("limits.staging_bytes_max is ", allowed, "; these shards need at least ", needed));
  }
  return absl::OkStatus();
}

ShardConfig ShardTable::MakeConfig(const wire::InstallShardsRequest& request, const wire::ShardSpec& spec) const {
  ShardConfig config;
  config.shard = ShardId(spec.shard());
  config.extent = ExtentOf(request, spec);
  config.groups = RunsOf(request, spec);
  config.optimizer = MakeOptimizerConfig(job_, request.samples_per_epoch());
  config.engine = MakeEngineConfig(job_, timeouts_, request.samples_per_epoch());
  config.chunk_elements = job_.wire().chunk_bytes() / sizeof(float);
  config.chunk_bytes_max = job_.wire().chunk_bytes();
  config.pinned_versions_max = job_.limits().pinned_versions_max();
  if (job_.consistency().delay_compensation() != job::DelayCompensation::NONE) {
    config.references_max = job_.consistency().dc_references_max();
  }
  config.bugs = bugs_.engine;
  config.on_unpinned = hooks_.on_unpinned;
  config.on_seeded = hooks_.on_seeded;
  return config;
}

void ShardTable::MakeRoomFor(uint64_t workers) {
  if (workers <= job_.cluster().workers()) return;
  uint64_t bytes = 0;
  for (const auto& [id, host] : hosts_) bytes += host->config().extent.size() * sizeof(float);
  budget_->Allow(StagingBytesMax(job_, bytes, workers));
  const uint64_t needed = bytes * PushesHeld(job_, workers);
  if (budget_->bytes_max() >= needed) return;
  log::Warning(workers, " workers have joined, and one step of them may need ", needed,
               " bytes; limits.staging_bytes_max is ", budget_->bytes_max(),
               ": training may stop until some workers leave; raise the limit");
}

absl::StatusOr<wire::SetMembersReply> ShardTable::SetMembers(const wire::SetMembersRequest& request) {
  if (installed_.empty() || feed_ != nullptr) {
    return absl::UnavailableError("members before shards: install the shards first");
  }
  if (absl::Status status = CheckCallee(request.job(), request.server_incarnation()); !status.ok()) return status;
  if (Generation(request.generation()) > generation_) {
    return absl::UnavailableError(absl::StrCat("members of shard map generation ", request.generation(),
                                               "; the server is still at ", generation_.value(), "; try again"));
  }
  if (Generation(request.generation()) != generation_) {
    return absl::FailedPreconditionError(absl::StrCat("members of shard map generation ", request.generation(),
                                                      "; the server is at ", generation_.value()));
  }
  std::vector<MemberEntry> members;
  std::set<Sender> senders;
  for (const wire::Member& member : request.members()) {
    members.push_back({{WorkerId(member.worker()), Incarnation(member.incarnation())}, member.name()});
    senders.insert(members.back().sender);
  }
  members_known_ = true;
  MakeRoomFor(members.size());
  wire::SetMembersReply reply;
  reply.set_epoch(request.epoch());
  reply.set_generation(request.generation());
  for (const auto& [id, host] : hosts_) {
    if (absl::Status status = host->SetMembers(Epoch(request.epoch()), members); !status.ok()) return status;
    if (request.has_staleness_bound()) host->SetStalenessBound(request.staleness_bound());
    reply.set_clock_min_largest(std::max(reply.clock_min_largest(), host->engine().clock_min().value()));
  }
  EndWhere([&](const Caller& caller) { return !caller.reader && !senders.contains(caller.sender); },
           absl::FailedPreconditionError(
               absl::StrCat("the worker is not in the set of members any more (epoch ", request.epoch(), ")")));
  return reply;
}

}  // namespace slackline::ps
