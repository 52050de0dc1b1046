#include "scheduler/checkpoint/checkpoints.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/checkpoint/names.h"
#include "common/job/job_kinds.h"
#include "common/metrics/test_metric.h"
#include "scheduler/watch/early_stopping.h"

namespace slackline::scheduler {
namespace {

// Time until a checkpoint that has failed is tried again.
constexpr absl::Duration kRetryAfter = absl::Seconds(30);
// Time until the last checkpoint is tried again on a full disk.
constexpr absl::Duration kRoomAgainAfter = absl::Seconds(2);
// Numbers that a restarted scheduler leaves out: servers know those that were begun after the last save. Few, because
// people see them.
constexpr uint64_t kForgottenCheckpoints = 10;

bool TakesStepsTogether(const job::Job& job) {
  // The sets of a quorum may differ between shards: their versions say nothing about one another.
  return FactsOf(job.consistency()).in_lockstep();
}

}  // namespace

Checkpoints::Checkpoints(Config config, EventLog& events, RoomWait& room)
    : config_(std::move(config)), events_(events), room_(room), last_number_(config_.last_number) {}

// --- When -------------------------------------------------------------------------------------------------------

std::optional<std::string> Checkpoints::Due(const Facts& facts) {
  if (facts.ended || in_progress()) return std::nullopt;
  const job::Checkpoint& job = config_.job.checkpoint();
  last_begun_ = std::max(last_begun_, facts.began);
  std::string reason;
  // A checkpoint that fails is tried again, but not at once.
  const bool just_failed = facts.now - failed_at_ < kRetryAfter;
  if (best_due_ && !just_failed) {
    reason = absl::StrCat("best ", Described(MetricOf(config_.job, job.metric()).name, *best_due_), " after epoch ",
                          best_due_->epoch);
  } else if (job.every_epochs() > 0 && facts.epochs >= epochs_ + job.every_epochs() && !just_failed) {
    reason = job.every_epochs() == 1 ? "every epoch" : absl::StrCat("every ", job.every_epochs(), " epochs");
  } else if (job.every_s() > 0 && facts.now - last_begun_ >= absl::Seconds(job.every_s())) {
    reason = absl::StrCat("every ", job.every_s(), " s");
  }
  // A checkpoint that is not possible now stays due.
  if (reason.empty() || !facts.possible.ok()) return std::nullopt;
  return reason;
}

void Checkpoints::Begin(const std::string& reason, state::Scheduler state, const ModelLayout& layout,
                        std::map<ServerId, std::string> servers, const Facts& facts) {
  SLACKLINE_CHECK(!in_progress());
  last_begun_ = facts.now;
  CheckpointRound::Config config;
  config.number = ++last_number_;
  config.reason = reason;
  config.aligned = TakesStepsTogether(config_.job) && !facts.ended;
  config.apart_max = config_.job.wire().window();
  config.servers = std::move(servers);
  config.begun = facts.now;
  config.timeout = absl::Seconds(config_.job.checkpoint().timeout_s());
  best_of_round_ = std::exchange(best_due_, std::nullopt);
  round_.emplace(std::move(config));
  manifest_.Clear();
  manifest_.set_number(last_number_);
  manifest_.set_job_name(config_.job.name());
  manifest_.set_seed(config_.job.seed());
  manifest_.set_reason(reason);
  manifest_.set_elements(layout.elements);
  manifest_.set_trained_elements(layout.trained_elements);
  *manifest_.mutable_scheduler() = std::move(state);
  Follow(facts);
}

bool Checkpoints::MayGetRoom(absl::Time now) const {
  return last_tried_ && no_room_ && room_.begun() && !in_progress() && !room_.Over(now);
}

Checkpoints::Last Checkpoints::LastOne(const Facts& facts) {
  // A job that has failed gets one as well: its servers may all be there, and only its workers gone.
  if (config_.folder.empty()) return Last::kNothing;
  const bool wanted = config_.job.checkpoint().at_end() || best_due_ || best_of_round_;
  if (!wanted) return Last::kNothing;
  if (MayGetRoom(facts.now)) {
    if (facts.now - failed_at_ < kRoomAgainAfter) return Last::kWait;
    last_tried_ = false;
  }
  if (!last_tried_ && !to_commit_) {
    // The present round may wait for a step of workers that have left.
    if (round_) DropRound();
    last_tried_ = true;
    // A checkpoint of the same weights would only take the place of an earlier one.
    const bool kept = facts.samples == samples_ && !best_due_;
    if (facts.began == absl::InfiniteFuture() || kept) return Last::kNothing;
    if (!last_since_) last_since_ = facts.now;
    if (facts.possible.ok()) return Last::kBegin;
    if (facts.now - *last_since_ <= config_.servers_max) {
      // In a very short run, the servers' heartbeats have not reported yet that there are weights.
      last_tried_ = false;
      return Last::kWait;
    }
    Fail(last_number_ + 1, facts.possible, facts);
  }
  return in_progress() || MayGetRoom(facts.now) ? Last::kWait : Last::kNothing;
}

// --- What becomes of it -----------------------------------------------------------------------------------------

std::optional<wire::BeginCheckpointRequest> Checkpoints::TakeCall() {
  if (!round_) return std::nullopt;
  const std::optional<CheckpointRound::Call> call = round_->TakeCall();
  if (!call) return std::nullopt;
  wire::BeginCheckpointRequest request;
  request.set_job(config_.id.value());
  request.set_checkpoint(round_->config().number);
  request.set_attempt(call->attempt);
  request.set_folder(config_.folder + "/" + checkpoint::PartialNameOf(request.checkpoint(), config_.id));
  request.set_ask_only(call->ask_only);
  if (call->at_version) request.set_at_version(*call->at_version);
  return request;
}

void Checkpoints::Tick(const Facts& facts) {
  if (!round_) return;
  round_->Tick(facts.now);
  Follow(facts);
}

void Checkpoints::Answered(ServerId server, const wire::BeginCheckpointRequest& request,
                           const absl::StatusOr<wire::BeginCheckpointReply>& reply, const Facts& facts) {
  if (!round_ || round_->config().number != request.checkpoint()) return;
  round_->Answered(server, {.attempt = request.attempt(), .ask_only = request.ask_only(), .at_version = {}}, reply);
  Follow(facts);
}

uint64_t Checkpoints::Heard(ServerId server, const wire::CheckpointProgress& progress, const Facts& facts) {
  if (progress.checkpoint() == 0) return 0;
  if (!round_ || progress.checkpoint() < round_->config().number) {
    return progress.done() ? progress.checkpoint() : 0;  // nobody waits for it any more
  }
  const bool final = round_->Heard(server, progress);
  Follow(facts);
  return final ? progress.checkpoint() : 0;
}

void Checkpoints::ServerLost(ServerId server) {
  if (round_) round_->ServerLost(server);
}

void Checkpoints::Follow(const Facts& facts) {
  if (!round_->over()) return;
  const CheckpointRound round = *round_;
  if (!round.error().empty()) {
    DropRound();
    return Fail(round.config().number,
                round.no_room() ? absl::ResourceExhaustedError(round.error()) : absl::UnavailableError(round.error()),
                facts);
  }
  round_.reset();
  took_ = facts.now - round.config().begun;
  for (const wire::CheckpointFile& file : round.Files()) *manifest_.add_files() = file;
  if (best_of_round_) {
    *manifest_.mutable_best()->mutable_evaluation() = ToState(*best_of_round_);
    const ComparedMetric metric = MetricOf(config_.job, config_.job.checkpoint().metric());
    manifest_.mutable_best()->set_by_loss(metric.name == kLossMetric);
    if (metric.name != kLossMetric && metric.name != kAccuracyMetric) manifest_.mutable_best()->set_metric(metric.name);
    manifest_.mutable_best()->set_lower_is_better(metric.lower_is_better);
  }
  to_commit_ = std::exchange(manifest_, {});
}

void Checkpoints::DropRound() {
  round_.reset();
  BestIsDueAgain();
}

void Checkpoints::BestIsDueAgain() {
  if (!best_due_) best_due_ = best_of_round_;
  best_of_round_.reset();
}

void Checkpoints::Fail(uint64_t number, const absl::Status& why, const Facts& facts) {
  failed_ = number;
  error_ = std::string(why.message());
  failed_at_ = facts.now;
  ++failures_;
  no_room_ = absl::IsResourceExhausted(why);
  const bool at_end = facts.ended && last_tried_ && no_room_;
  const bool first = !room_.begun();
  if (at_end) room_.Begin(facts.now);
  // The attempts that follow say the same again.
  if (at_end && !first && MayGetRoom(facts.now)) return;
  events_.Add(absl::StrCat(
      "checkpoint ", number, " failed: ", why.message(),
      !at_end ? ""
      : MayGetRoom(facts.now)
          ? absl::StrCat("; it is tried again for ", absl::FormatDuration(room_.max()),
                         " (checkpoint.timeout_s), while the servers keep the weights: make room "
                         "there")
          : absl::StrCat("; given up after ", Readable(room_.Waited(facts.now)), " (checkpoint.timeout_s)")));
}

void Checkpoints::Committed(const absl::StatusOr<std::string>& folder, const Facts& facts) {
  SLACKLINE_CHECK(to_commit_.has_value());
  const checkpoint::Manifest manifest = *std::exchange(to_commit_, std::nullopt);
  if (!folder.ok()) {
    BestIsDueAgain();
    return Fail(manifest.number(), folder.status(), facts);
  }
  best_of_round_.reset();
  no_room_ = false;
  ++made_;
  whole_ = manifest.number();
  whole_at_ = facts.now;
  folder_ = *folder;
  samples_ = manifest.scheduler().progress().totals().samples();
  epochs_ = manifest.scheduler().tasks().ranges().epochs_done();
  uint64_t bytes = 0;
  for (const wire::CheckpointFile& file : manifest.files()) bytes += file.bytes();
  const std::string size =
      bytes < 100'000 ? absl::StrCat(bytes, " bytes") : absl::StrFormat("%.1f MB", static_cast<double>(bytes) / 1e6);
  events_.Add(absl::StrFormat("checkpoint %d is on disk: %d samples, %s, in %.2f s (%s)", manifest.number(), *samples_,
                              size, absl::ToDoubleSeconds(took_), manifest.reason()));
}

void Checkpoints::Fill(absl::Time now, wire::GetStatusReply& reply) const {
  reply.set_checkpoint_in_progress(in_progress() ? last_number_ : 0);
  reply.set_checkpoint(whole_);
  reply.set_checkpoint_folder(folder_);
  if (whole_ > 0) reply.set_checkpoint_age_seconds(absl::ToDoubleSeconds(Age(now)));
  reply.set_checkpoint_failed(failed_);
  reply.set_checkpoint_error(error_);
}

// --- Going on ---------------------------------------------------------------------------------------------------

void Checkpoints::Save(state::Scheduler& state) const {
  // The best of a checkpoint under way is due again: the next scheduler does not know of it.
  const std::optional<EvaluationSummary>& best_due = best_due_ ? best_due_ : best_of_round_;
  if (best_due) *state.mutable_best_due() = ToState(*best_due);
  state.set_checkpoint_begun(last_number_);
  state.set_checkpoint_whole(whole_);
  state.set_checkpoint_whole_folder(folder_);
  state.set_checkpoint_epochs(epochs_);
}

void Checkpoints::Restore(const state::Scheduler& state, absl::Time now) {
  if (state.has_best_due()) best_due_ = FromState(state.best_due());
  last_number_ = std::max(last_number_, state.checkpoint_begun()) + kForgottenCheckpoints;
  last_begun_ = now;
  whole_ = state.checkpoint_whole();
  whole_at_ = now;
  folder_ = state.checkpoint_whole_folder();
  epochs_ = state.checkpoint_epochs();
}

void Checkpoints::GoOnFrom(const checkpoint::Manifest& manifest, const std::string& folder, const Facts& facts) {
  whole_ = manifest.number();
  whole_at_ = facts.now;
  folder_ = folder;
  epochs_ = facts.epochs;
  samples_ = facts.samples;
}

}  // namespace slackline::scheduler
