#include "ps/service/shard_builder.h"

#include <sys/resource.h>
#include <unistd.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/checkpoint/model_reader.h"
#include "common/job/job_kinds.h"
#include "common/job/optimizer_config.h"
#include "common/log/logging.h"
#include "common/process/kill_point.h"
#include "ps/base/readable.h"
#include "ps/service/staging_size.h"
#include "ps/shard/shard_settings.h"
#include "ps/store/checkpoint_part.h"

namespace slackline::ps {
namespace {

uint64_t MachineBytes() {
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Checks that the machine has memory for the weights, before any is taken: too much would end the process. Later sums
// cannot overflow then.
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

// Fills a new shard from the checkpoint, if the request names one.
absl::Status ReadCheckpoint(const wire::InstallShardsRequest& request, ShardHost& host) {
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

}  // namespace

absl::Status CheckShards(const wire::InstallShardsRequest& request, const job::Job& job) {
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
  const job::Optimizer& optimizer = request.has_optimizer() ? request.optimizer() : job.optimizer();
  if (absl::Status status = CheckParts(request, optimizer.groups_size()); !status.ok()) return status;
  if (absl::Status status = CheckFits(request); !status.ok()) return status;
  if (request.replicated() && FactsOf(job.consistency()).answers_first) {
    return absl::InvalidArgumentError(absl::StrCat(FactsOf(job.consistency()).name, FactsOf(job.consistency()).with,
                                                   ", and backups: it answers a push before it is in a step"));
  }
  const uint64_t workers = job.cluster().workers();
  const uint64_t bytes = WeightBytes(request), needed = StagingBytesNeeded(job, bytes, workers);
  if (const uint64_t allowed = StagingBytesMax(job, bytes, workers); allowed < needed) {
    return absl::InvalidArgumentError(
        absl::StrCat("limits.staging_bytes_max is ", allowed, "; these shards need at least ", needed));
  }
  return absl::OkStatus();
}

absl::StatusOr<ShardBuilder::Built> ShardBuilder::Build(const wire::InstallShardsRequest& request,
                                                        StagingBudget& budget) const {
  const bool shared_memory = job_.wire().same_host() == job::Wire::SHARED_MEMORY && DescriptorsSuffice(job_, request);
  Built built;
  for (const wire::ShardSpec& spec : request.shards()) {
    ShardConfig config = ConfigOf(request, spec);
    config.shared_memory = shared_memory;
    if (absl::Status status = BuildOne(request, config, budget, built); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat("shard ", spec.shard(), ": ", status.message()));
    }
  }
  return built;
}

absl::Status ShardBuilder::BuildOne(const wire::InstallShardsRequest& request, const ShardConfig& config,
                                    StagingBudget& budget, Built& built) const {
  std::unique_ptr<ShardHost>& host = built.shards[config.shard.value()];
  host = std::make_unique<ShardHost>(config, budget, metrics_, time_);
  if (request.restore_lineage() == 0 && !request.has_backup_of()) {
    if (absl::Status status = ReadCheckpoint(request, *host); !status.ok()) return status;
  }
  if (!keeps_snapshots(request)) return absl::OkStatus();

  StoredShard kept = StoreOf(request, *host);
  absl::StatusOr<std::unique_ptr<SnapshotStore>> store = kept.open();
  if (absl::IsAborted(store.status())) return absl::UnavailableError(store.status().message());
  if (!store.ok() && !absl::IsFailedPrecondition(store.status()) && request.restore_lineage() == 0) {
    log::Error("cannot keep snapshots of shard ", config.shard.value(),
               ", so no process can replace this server after a crash: ", std::string(store.status().message()));
    metrics_.snapshots_failed.Add();
    built.snapshot_errors[config.shard] = std::string(store.status().message());
    host->FirstSnapshotTried();
    return absl::OkStatus();
  }
  // The scheduler tries again: somebody may make room.
  if (absl::IsResourceExhausted(store.status())) return absl::UnavailableError(store.status().message());
  if (!store.ok()) return store.status();
  if (request.restore_lineage() > 0) {
    absl::StatusOr<std::unique_ptr<ShardHost>> restored =
        Restore(config, **store, Lineage(request.restore_lineage()), budget);
    if (!restored.ok()) return restored.status();
    host = *std::move(restored);
    // The shard's first snapshot is on disk already.
    host->FirstSnapshotTried();
    kill_point::Passed("restore");
  } else if (!(*store)->kept().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(kept.folder.string(), " has snapshots of this job, ",
                     "but the shard starts from initial weights; the snapshots are not overwritten"));
  }
  kept.store = *std::move(store);
  built.stores.push_back(std::move(kept));
  return absl::OkStatus();
}

StoredShard ShardBuilder::StoreOf(const wire::InstallShardsRequest& request, const ShardHost& host) const {
  StoreOptions options;
  options.folder =
      std::filesystem::path(request.snapshot_folder()) / absl::StrFormat("shard-%05d", host.config().shard.value());
  options.keep = job_.durability().snapshots_kept();
  options.open = options_.open_database;
  const ShardIdentity identity = {JobId(request.job()), host.config().shard, host.config().extent, host.arrays()};
  const auto open = [options, identity] { return SnapshotStore::Open(options, identity); };
  return {host.config().shard, options.folder, nullptr, open};
}

absl::StatusOr<std::unique_ptr<ShardHost>> ShardBuilder::Restore(const ShardConfig& config, const SnapshotStore& store,
                                                                 Lineage lineage, StagingBudget& budget) const {
  absl::Status broken = absl::DataLossError("there is no snapshot to continue from");
  for (const KeptSnapshot& kept : store.kept()) {
    auto host = std::make_unique<ShardHost>(config, budget, metrics_, time_);
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

ShardConfig ShardBuilder::ConfigOf(const wire::InstallShardsRequest& request, const wire::ShardSpec& spec) const {
  ShardConfig config;
  config.shard = ShardId(spec.shard());
  config.extent = ExtentOf(request, spec);
  config.groups = RunsOf(request, spec);
  job::Job job = job_;
  if (request.has_optimizer()) *job.mutable_optimizer() = request.optimizer();
  config.optimizer = MakeOptimizerConfig(job, request.samples_per_epoch());
  config.engine = MakeEngineConfig(job_, options_.timeouts, request.samples_per_epoch());
  config.chunk_elements = job_.wire().chunk_bytes() / sizeof(float);
  config.chunk_bytes_max = job_.wire().chunk_bytes();
  config.pinned_versions_max = job_.limits().pinned_versions_max();
  if (job_.consistency().delay_compensation() != job::DelayCompensation::NONE) {
    config.references_max = job_.consistency().dc_references_max();
  }
  config.snapshots = keeps_snapshots(request) || request.replicated();
  config.on_unpinned = options_.on_unpinned;
  config.on_seeded = options_.on_seeded;
  return config;
}

}  // namespace slackline::ps
