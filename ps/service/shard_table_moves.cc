// Shards that move from one server to another while training goes on: copied and followed where they are, then given up
// there, then promoted here.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/job_kinds.h"
#include "common/log/logging.h"
#include "common/process/kill_point.h"
#include "common/text/counted.h"
#include "ps/service/shard_table.h"

namespace slackline::ps {
namespace {

bool SameExtent(const ShardHost& host, const wire::ShardSpec& spec) {
  return host.config().extent.begin == spec.begin() && host.config().extent.end == spec.end();
}

}  // namespace

// --- Where they are ---------------------------------------------------------------------------------------------

absl::Status ShardTable::AttachTaker(ReplicaSink& sink, const wire::BackupHello& hello) {
  if (log_ != nullptr && log_->move() == 0) {
    return absl::FailedPreconditionError("shards of a server with a backup cannot move (durability.mode)");
  }
  if (const ModeFacts& mode = FactsOf(job_.consistency()); mode.answers_first) {
    return absl::FailedPreconditionError(
        absl::StrCat("shards cannot move in ", mode.name, mode.with, ": it answers a push before it is in a step"));
  }
  std::set<ShardId> shards;
  for (const uint32_t shard : hello.shards()) {
    if (!hosts_.contains(shard)) return UnknownShard(shard);
    shards.insert(ShardId(shard));
  }
  if (shards.empty()) return absl::InvalidArgumentError("a move of no shards");
  if (log_ == nullptr || log_->move() != hello.move()) {
    if (log_ != nullptr && log_->move() > hello.move()) {
      return absl::FailedPreconditionError(
          absl::StrCat("move ", hello.move(), "; move ", log_->move(), " was begun already"));
    }
    if (log_ != nullptr && !log_->alone()) {
      return absl::UnavailableError(
          absl::StrCat("move ", log_->move(), " is not at its end; the scheduler has not released this server"));
    }
    CloseLog(absl::AbortedError("another move has begun"));
    OpenLog(absl::InfinitePast(), {shards.begin(), shards.end()}, hello.move());
  }
  return log_->Attach(sink, Incarnation(hello.backup_incarnation()));
}

void ShardTable::CloseLog(const absl::Status& why) {
  if (log_ == nullptr) return;
  log_->Close(why);
  attachments_ = log_->progress().attachment();
  for (const auto& [id, host] : hosts_) host->SetJournal(nullptr);
  log_.reset();
}

// --- Where they go ----------------------------------------------------------------------------------------------

absl::Status ShardTable::Take(const wire::TakeShardsRequest& request) {
  if (identity_.server == ServerId()) {
    return absl::UnavailableError("the server has not heard its own number yet; try again");
  }
  if (absl::Status status = CheckCallee(request.job(), request.server_incarnation()); !status.ok()) return status;
  if (ServerId(request.server()) != identity_.server) {
    return absl::FailedPreconditionError(
        absl::StrCat("shards for server ", request.server(), "; this is server ", identity_.server.value()));
  }
  if (feed_ != nullptr) return absl::FailedPreconditionError("a backup takes no shards");
  if (hooks_.on_backup == nullptr) return absl::UnimplementedError("this server can take no shards");
  if (request.move() == 0) return absl::InvalidArgumentError("a move has number 0; allowed is at least 1");
  if (request.move() < last_move_) {
    return absl::FailedPreconditionError(
        absl::StrCat("move ", request.move(), "; move ", last_move_, " was begun already"));
  }
  if (!request.has_from()) {
    last_move_ = request.move();
    ForgetTaken();
    return absl::OkStatus();
  }
  if (request.move() == last_move_) return absl::OkStatus();  // the same again
  wire::InstallShardsRequest install;
  install.set_job(request.job());
  install.set_server(request.server());
  install.set_trained_elements(request.trained_elements());
  install.set_samples_per_epoch(request.samples_per_epoch());
  install.set_frozen_from(request.frozen_from());
  *install.mutable_groups() = request.groups();
  if (request.has_optimizer()) *install.mutable_optimizer() = request.optimizer();
  *install.mutable_shards() = request.shards();
  *install.mutable_backup_of() = request.from();
  // They will keep snapshots here, or have a backup's.
  install.set_replicated(job_.durability().mode() != job::Durability::NONE);
  // With all that is here already, which may stay.
  wire::InstallShardsRequest all = install;
  for (const auto& [id, host] : hosts_) {
    wire::ShardSpec& spec = *all.add_shards();
    spec.set_shard(id);
    spec.set_begin(host->config().extent.begin);
    spec.set_end(host->config().extent.end);
  }
  if (absl::Status status = CheckShards(all, job_); !status.ok()) return status;
  MakeBudget(all);
  ForgetTaken();
  last_move_ = request.move();
  taken_ = std::make_unique<Taken>();
  taken_->install = std::move(install);
  log::Info("takes ", Counted(request.shards_size(), "shard"), " from ", request.from().name(), " (",
            request.from().address(), "), move ", request.move());
  hooks_.on_backup(&taken_->install.backup_of());
  return absl::OkStatus();
}

void ShardTable::ForgetTaken() {
  if (taken_ == nullptr) return;
  taken_.reset();
  hooks_.on_backup(nullptr);
}

std::optional<wire::BackupHello> ShardTable::BeginTaking() {
  taken_->begins = true;
  const wire::InstallShardsRequest& install = taken_->install;
  wire::BackupHello hello;
  hello.set_job(identity_.job.value());
  hello.set_server(install.backup_of().server());
  hello.set_server_incarnation(install.backup_of().incarnation());
  hello.set_backup_incarnation(identity_.incarnation.value());
  hello.set_move(last_move_);
  for (const wire::ShardSpec& spec : install.shards()) hello.add_shards(spec.shard());
  return hello;
}

absl::Status ShardTable::FollowTaken(const wire::ReplicaFrame& frame, const rpc::Payload& payload) {
  // Only now: a server that does not let the stream in may need what came with the one before.
  if (std::exchange(taken_->begins, false)) {
    taken_->feed.reset();
    taken_->hosts.clear();
    absl::StatusOr<ShardBuilder::Built> built = builder_.Build(taken_->install, *budget_);
    if (!built.ok()) return built.status();
    taken_->hosts = std::move(built->shards);
    taken_->feed = std::make_unique<BackupFeed>(identity_.job, taken_->hosts, time_);
  }
  return taken_->feed->Receive(frame, payload);
}

// --- The end ----------------------------------------------------------------------------------------------------

bool ShardTable::IsMove(const wire::InstallShardsRequest& request) const {
  // A process that has nothing of it goes on from snapshots, as after any death.
  const bool begun = !installed_.empty() || taken_ != nullptr;
  return request.moves() && begun && feed_ == nullptr && Generation(request.generation()) > generation_;
}

absl::Status ShardTable::CheckMove(const wire::InstallShardsRequest& request) const {
  std::set<uint32_t> seen;
  for (const wire::ShardSpec& spec : request.shards()) {
    if (!seen.insert(spec.shard()).second) {
      return absl::InvalidArgumentError(absl::StrCat("shard ", spec.shard(), " is there twice"));
    }
    auto host = hosts_.find(spec.shard());
    if (host == hosts_.end()) {
      if (taken_ == nullptr || taken_->feed == nullptr || !taken_->feed->in_step() ||
          !taken_->hosts.contains(spec.shard())) {
        return absl::DataLossError(
            absl::StrCat("shard ", spec.shard(), " was not taken, or not all of it, and cannot ", "live here"));
      }
      host = taken_->hosts.find(spec.shard());
    }
    if (!SameExtent(*host->second, spec)) {
      return absl::InvalidArgumentError(
          absl::StrCat("shard ", spec.shard(), " of elements [", spec.begin(), ", ", spec.end(), "); here it has [",
                       host->second->config().extent.begin, ", ", host->second->config().extent.end, ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status ShardTable::Move(const wire::InstallShardsRequest& request) {
  if (absl::Status status = CheckMove(request); !status.ok()) return status;
  kill_point::Passed("move");
  // Nothing fails from here on.
  EndWhere([](const Caller&) { return true; }, absl::UnavailableError("the shard map has changed; fetch it anew"));
  grants_.Clear();
  std::set<uint32_t> wanted;
  for (const wire::ShardSpec& spec : request.shards()) wanted.insert(spec.shard());
  GiveUp(wanted);
  std::vector<StoredShard> stores;
  size_t added = 0;
  for (const wire::ShardSpec& spec : request.shards()) {
    if (hosts_.contains(spec.shard())) continue;
    ++added;
    std::unique_ptr<ShardHost>& host = hosts_[spec.shard()];
    host = std::move(taken_->hosts.at(spec.shard()));
    host->Promote(Lineage(request.restore_lineage()));
    if (builder_.keeps_snapshots(request)) stores.push_back(builder_.StoreOf(request, *host));
  }
  if (added > 0) ForgetTaken();
  if (!stores.empty()) hooks_.on_stores(std::move(stores));
  generation_ = Generation(request.generation());
  installed_ = WhatIsInstalled(request);
  members_known_ = false;
  log::Info("this server now holds ", Counted(hosts_.size(), "shard"), "; ", added, " of them moved here, generation ",
            request.generation());
  return absl::OkStatus();
}

void ShardTable::GiveUp(const std::set<uint32_t>& wanted) {
  std::vector<ShardId> gone;
  for (const auto& [id, host] : hosts_) {
    if (!wanted.contains(id)) gone.push_back(ShardId(id));
  }
  cuts_.GiveUp();
  if (gone.empty()) return;
  // What was withheld is answered where the shards are now.
  CloseLog(absl::OkStatus());
  for (const ShardId shard : gone) {
    hosts_.erase(shard.value());
    kept_.erase(shard);
    snapshot_errors_.erase(shard);
  }
  if (hooks_.on_stores_gone != nullptr) hooks_.on_stores_gone(gone);
}

}  // namespace slackline::ps
