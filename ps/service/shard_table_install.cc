// ShardTable: takes shards and the set of live workers from the scheduler.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/logging.h"
#include "common/text/counted.h"
#include "ps/service/shard_table.h"
#include "ps/service/staging_size.h"
#include "ps/shard/shard_settings.h"

namespace slackline::ps {

absl::Status ShardTable::Install(const wire::InstallShardsRequest& request) {
  if (absl::Status status = CheckInstall(request); !status.ok()) return status;
  if (IsPromotion(request)) return Promote(request);
  if (IsMove(request)) return Move(request);
  if (request.has_backup_of()) return InstallBackup(request);
  if (!installed_.empty()) return absl::OkStatus();  // the same again
  if (request.promote()) return absl::DataLossError("this process has followed nobody, and cannot take over");
  if (absl::Status status = CheckShards(request, job_); !status.ok()) return status;
  ForgetTaken();  // before the budget that it borrows
  budget_ = std::make_unique<StagingBudget>(StagingBytesMax(job_, WeightBytes(request), job_.cluster().workers()));
  absl::StatusOr<ShardBuilder::Built> built = builder_.Build(request, *budget_);
  if (!built.ok()) return built.status();
  hosts_ = std::move(built->shards);
  snapshot_errors_ = std::move(built->snapshot_errors);
  for (const StoredShard& stored : built->stores) {
    if (!stored.store->kept().empty()) kept_[stored.shard] = stored.store->kept().front();
  }
  if (!built->stores.empty()) hooks_.on_stores(std::move(built->stores));
  generation_ = Generation(request.generation());
  installed_ = WhatIsInstalled(request);
  if (request.replicated()) OpenLog(absl::InfinitePast(), ShardsHere(), 0);
  log::Info("holds ", Counted(hosts_.size(), "shard"), ", ", WeightBytes(request), " bytes of weights; stages at most ",
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
  const uint64_t most = StagingBytesMax(job_, WeightBytes(request), job_.cluster().workers());
  if (budget_ == nullptr) budget_ = std::make_unique<StagingBudget>(most);
  budget_->Allow(most);
}

absl::Status ShardTable::InstallBackup(const wire::InstallShardsRequest& request) {
  if (feed_ == nullptr && !installed_.empty()) {
    // A scheduler that was started again may not know yet that this one has taken over.
    return absl::UnavailableError("this server holds shards of its own, and is no backup (any more)");
  }
  if (feed_ != nullptr && backup_.SerializeAsString() == request.SerializeAsString()) return absl::OkStatus();
  if (hooks_.on_backup == nullptr) return absl::UnimplementedError("this server can be no backup");
  if (absl::Status status = CheckShards(request, job_); !status.ok()) return status;
  ForgetTaken();
  feed_ = std::make_unique<BackupFeed>(identity_.job, BackupFeed::Hosts(), time_);
  hosts_.clear();
  budget_ = std::make_unique<StagingBudget>(StagingBytesMax(job_, WeightBytes(request), job_.cluster().workers()));
  absl::StatusOr<ShardBuilder::Built> built = builder_.Build(request, *budget_);
  if (!built.ok()) return built.status();
  hosts_ = std::move(built->shards);
  backup_ = request;
  generation_ = Generation(request.generation());
  installed_ = request.SerializeAsString();
  feed_ = std::make_unique<BackupFeed>(identity_.job, hosts_, time_);
  log::Info("is the backup of server ", request.server(), " (", request.backup_of().name(), ", ",
            request.backup_of().address(), ")");
  hooks_.on_backup(&backup_.backup_of());
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

void ShardTable::MakeRoomFor(uint64_t workers) {
  if (workers <= job_.cluster().workers()) return;
  uint64_t bytes = 0;
  for (const auto& [id, host] : hosts_) bytes += host->config().extent.size() * sizeof(float);
  budget_->Allow(StagingBytesMax(job_, bytes, workers));
  const uint64_t needed = StagingBytesNeeded(job_, bytes, workers);
  if (budget_->bytes_max() >= needed) return;
  log::Warning(workers, " workers have joined, and one step of them may need ", needed,
               " bytes; limits.staging_bytes_max is ", budget_->bytes_max(),
               ": training may stop until some workers leave; raise the limit");
}

void ShardTable::AddFenced(wire::SetMembersReply& reply) const {
  struct Known {
    uint32_t shards = 0;
    // Smallest position of each lease, and the number of shards that know one.
    std::map<uint64_t, std::pair<uint64_t, uint32_t>> positions = {};
  };
  std::map<Sender, Known> workers;
  for (const auto& [id, host] : hosts_) {
    for (const auto& [sender, positions] : host->part_positions().Fenced()) {
      Known& known = workers[sender];
      ++known.shards;
      for (const wire::PartPosition& position : positions) {
        auto& [records, shards] = known.positions.try_emplace(position.lease(), position.records(), 0).first->second;
        records = std::min(records, position.records());
        ++shards;
      }
    }
  }
  for (const auto& [sender, known] : workers) {
    wire::FencedWorker& worker = *reply.add_fenced();
    worker.set_worker(sender.worker.value());
    worker.set_incarnation(sender.incarnation.value());
    worker.set_shards(known.shards);
    for (const auto& [lease, position] : known.positions) {
      if (position.second != known.shards) continue;
      wire::PartPosition& part = *worker.add_parts();
      part.set_lease(lease);
      part.set_records(position.first);
    }
  }
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
  const MemberSet set = MembersOf(request);
  wire::SetMembersReply reply;
  reply.set_epoch(request.epoch());
  reply.set_generation(request.generation());
  for (const auto& [id, host] : hosts_) {
    if (absl::Status status = host->SetMembers(set); !status.ok()) return status;
    if (request.has_staleness_bound()) host->SetStalenessBound(request.staleness_bound());
    reply.set_clock_min_largest(std::max(reply.clock_min_largest(), host->engine().clock_min().value()));
  }
  members_known_ = true;
  AddFenced(reply);
  if (hosts_.empty()) return reply;
  const Engine& engine = hosts_.begin()->second->engine();
  MakeRoomFor(engine.live_workers());
  EndWhere([&](const Caller& caller) { return !caller.reader && !engine.IsMember(caller.sender); },
           absl::FailedPreconditionError(
               absl::StrCat("the worker is not in the set of members any more (epoch ", request.epoch(), ")")));
  return reply;
}

}  // namespace slackline::ps
