#include "scheduler/checkpoint/checkpoint_round.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace slackline::scheduler {

CheckpointRound::CheckpointRound(Config config) : config_(std::move(config)) {
  out_ = {.attempt = 1, .ask_only = config_.aligned, .at_version = {}};
  call_ = out_;
}

std::optional<CheckpointRound::Call> CheckpointRound::TakeCall() { return std::exchange(call_, std::nullopt); }

std::string CheckpointRound::NameOf(ServerId server) const {
  const auto found = config_.servers.find(server);
  return absl::StrCat("server ", found != config_.servers.end() ? found->second : absl::StrCat(server.value()));
}

void CheckpointRound::Fail(ServerId server, const std::string& what) {
  if (!over()) error_ = absl::StrCat(NameOf(server), " ", what);
}

void CheckpointRound::Answered(ServerId server, const Call& call,
                               const absl::StatusOr<wire::BeginCheckpointReply>& reply) {
  if (over() || call.attempt != out_.attempt) return;
  if (!reply.ok()) return Fail(server, absl::StrCat("refuses: ", reply.status().message()));
  apart_ = std::max(apart_, reply->version_max() - std::min(reply->version_min(), reply->version_max()));
  version_max_ = std::max(version_max_, reply->version_max());
  version_min_ = std::min(version_min_.value_or(reply->version_min()), reply->version_min());
  passed_ = passed_ || !reply->begun();
  answered_.insert(server);
  if (answered_.size() == config_.servers.size() && passed_) Decide();
}

bool CheckpointRound::MayBeTogether() const {
  // All shards of a server are looked at in one moment.
  if (apart_ > config_.apart_max || asks_ >= kAsksMax) return false;
  // Servers answer at different moments: training may have gone on in between. But what was asked later is later.
  return !asked_before_ || *version_min_ + config_.apart_max >= *asked_before_;
}

void CheckpointRound::AskAgain() {
  ++asks_;
  asked_before_ = std::exchange(version_max_, 0);
  version_min_.reset();
  out_ = {.attempt = out_.attempt + 1, .ask_only = true, .at_version = {}};
  call_ = out_;
  passed_ = false;
  answered_.clear();
}

void CheckpointRound::Decide() {
  if (out_.ask_only && version_max_ - *version_min_ > config_.apart_max) {
    if (MayBeTogether()) return AskAgain();
    // A shard that has come back from a snapshot stays behind: one version is not one step there.
    out_ = {.attempt = out_.attempt + 1, .ask_only = false, .at_version = {}};
    call_ = out_;
    passed_ = false;
    answered_.clear();
    return;
  }
  // The first time it is tried where they are; then ever further ahead.
  ahead_ = out_.ask_only ? 0 : std::max<uint64_t>(1, 2 * ahead_);
  out_ = {.attempt = out_.attempt + 1, .ask_only = false, .at_version = version_max_ + ahead_};
  call_ = out_;
  passed_ = false;
  answered_.clear();
  waiting_.clear();
}

bool CheckpointRound::Heard(ServerId server, const wire::CheckpointProgress& progress) {
  if (progress.checkpoint() != config_.number || progress.attempt() != out_.attempt) return false;
  if (!progress.done()) {
    waiting_[server] = !out_.at_version
                           ? "it is writing"
                           : absl::StrCat("its shard ", progress.awaited_shard(), " is at version ",
                                          progress.awaited_version(), ", the cut is at ", *out_.at_version);
    return false;
  }
  if (over()) return true;
  if (!progress.error().empty()) {
    no_room_ = progress.no_room();
    Fail(server, absl::StrCat("could not write: ", progress.error()));
  } else {
    files_[server].assign(progress.files().begin(), progress.files().end());
  }
  return true;
}

void CheckpointRound::ServerLost(ServerId server) {
  if (config_.servers.contains(server)) Fail(server, "died");
}

std::string CheckpointRound::Awaited() const {
  std::vector<std::string> awaited;
  for (const auto& [server, name] : config_.servers) {
    if (files_.contains(server)) continue;
    const auto why = waiting_.find(server);
    const bool answered = answered_.contains(server);
    awaited.push_back(absl::StrCat(NameOf(server), " (",
                                   why != waiting_.end() ? why->second
                                   : answered            ? "it has begun"
                                                         : "it has not answered",
                                   ")"));
  }
  return absl::StrJoin(awaited, ", ");
}

void CheckpointRound::Tick(absl::Time now) {
  if (over() || now - config_.begun <= config_.timeout) return;
  error_ = absl::StrCat("it took more than ", absl::FormatDuration(config_.timeout),
                        " (checkpoint.timeout_s); still awaited: ", Awaited());
}

std::vector<wire::CheckpointFile> CheckpointRound::Files() const {
  std::vector<wire::CheckpointFile> all;
  for (const auto& [server, files] : files_) all.insert(all.end(), files.begin(), files.end());
  std::sort(all.begin(), all.end(), [](const wire::CheckpointFile& a, const wire::CheckpointFile& b) {
    return std::pair(a.begin(), a.shard()) < std::pair(b.begin(), b.shard());
  });
  return all;
}

}  // namespace slackline::scheduler
