// A server and its backup: who is what.
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/kill_point.h"
#include "common/logging.h"
#include "ps/service/shard_table.h"

namespace slackline::ps {
namespace {

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
  // Only now: a server that does not let the stream in may need what came with the one before.
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
