// A shard whose steps are taken elsewhere: the backup's copy.
#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "ps/service/shard_host.h"

namespace slackline::ps {
namespace {

// What the copy knows of the worker; one of an earlier incarnation gives way.
WorkerClock& KnownOf(EngineState& state, const Sender& sender) {
  std::erase_if(state.workers, [&](const WorkerClock& worker) {
    return worker.sender.worker == sender.worker && worker.sender.incarnation < sender.incarnation;
  });
  const auto found = absl::c_find_if(state.workers, [&](const WorkerClock& worker) { return worker.sender == sender; });
  if (found != state.workers.end()) return *found;
  return state.workers.emplace_back(WorkerClock{sender, state.clock_floor, {}});
}

}  // namespace

absl::Status ShardHost::Adopt(const ReadSnapshot& read) {
  absl::StatusOr<EngineState> engine = read(state_);
  if (!engine.ok()) return engine.status();
  replica_ = *std::move(engine);
  version_ = replica_->version;
  return absl::OkStatus();
}

absl::Status ShardHost::Follow(const RecordedStep& step) {
  SLACKLINE_CHECK(replica_ && step.push != nullptr);
  const Version next = {version_.lineage, version_.number + 1};
  if (step.version != next) {
    return absl::InternalError(absl::StrCat("shard ", config_.shard.value(), " follows at version ", ToString(version_),
                                            ", and the step is to version ", ToString(step.version)));
  }
  const Contribution contribution = {step.push->pieces(), step.weight, step.gradient_norm, {}};
  state_.Apply({&contribution, 1}, step.arguments);
  version_ = step.version;
  replica_->version = step.version;
  replica_->samples_applied += step.arguments.samples;
  for (const auto& [sender, answer] : step.answers) Follow(sender, answer);
  return absl::OkStatus();
}

void ShardHost::Follow(const Sender& sender, const Answer& answer) {
  WorkerClock& worker = KnownOf(*replica_, sender);
  if (worker.sender != sender || answer.sequence <= worker.clock) return;  // an old one, or said again
  worker.clock = answer.sequence;
  worker.answers.push_back(answer);
  if (worker.answers.size() > config_.engine.window_max) worker.answers.pop_front();
}

void ShardHost::Follow(const Sender& sender, Clock64 clock) {
  WorkerClock& worker = KnownOf(*replica_, sender);
  worker.clock = std::max(worker.clock, clock);
}

void ShardHost::Promote(Lineage lineage) {
  SLACKLINE_CHECK(replica_);
  // Whoever was not heard of yet begins with the slowest of the others.
  const auto slowest =
      absl::c_min_element(replica_->workers, [](const auto& a, const auto& b) { return a.clock < b.clock; });
  if (slowest != replica_->workers.end()) replica_->clock_floor = std::max(replica_->clock_floor, slowest->clock);
  engine_.Restore(*std::exchange(replica_, std::nullopt), lineage);
  version_ = engine_.version();
  FirstSnapshotTried();
}

}  // namespace slackline::ps
