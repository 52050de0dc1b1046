#include "scheduler/work/tasks.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace slackline::scheduler {

Work Tasks::Next(const Asker& asker) {
  if (complete_) return LeaveWork{};
  if (auto own = assigned_.find(asker.holder); own != assigned_.end()) return own->second;
  if (StreamEnded() && !ranges_.cut_short()) EndEarly();
  if (ranges_.Finished()) return Final(asker);
  const bool has_part = !stream_ || stream_->HasFree();
  if (!asker.live) {
    if (ranges_.HasFree() && has_part) return RegisterAgainWork{};
    return StandbyWork{};
  }
  // An evaluation uses the weights of now: it cannot wait until the ranges are gone.
  if (due_ && asker.swift && !ranges_.Holds(asker.holder)) {
    const EvaluationWork work = *due_;
    due_.reset();
    assigned_[asker.holder] = work;
    return work;
  }
  if (!has_part && !stream_->Holds(asker.holder)) return StandbyWork{};
  DataRanges::Pace pace = asker.pace;
  pace.samples_left = LeftToMark();
  if (std::optional<DataRange> range = ranges_.Lease(asker.holder, pace)) return *range;
  return StandbyWork{};
}

Work Tasks::Final(const Asker& asker) {
  // The last epoch's accuracy is measured by the final evaluation; that of an epoch before it is lost if nobody has
  // begun to measure it.
  due_.reset();
  if (!assigned_.empty() || !asker.swift) return StandbyWork{};
  const EvaluationWork work = {ranges_.epochs_done(), /*final=*/true};
  assigned_[asker.holder] = work;
  return work;
}

void Tasks::EndEarly() {
  ranges_.CutShort();
  due_.reset();
}

absl::Status Tasks::FinishRange(const Holder& holder, RangeId range) {
  const absl::StatusOr<uint32_t> done = ranges_.Done(holder, range);
  Reached(standing_);
  return done.status();
}

absl::Status Tasks::LeaveRange(const Holder& holder, RangeId range, uint64_t done_to) {
  const absl::StatusOr<uint32_t> done = ranges_.DoneTo(holder, range, done_to);
  Reached(standing_);
  return done.status();
}

absl::StatusOr<std::vector<wire::PartLease>> Tasks::LeaseParts(const Holder& holder,
                                                               const wire::LeasePartsRequest& request) {
  const absl::Status good = stream_ ? stream_->CheckSame(request.stream()) : StreamParts::Check(request.stream());
  if (!good.ok()) return good;
  if (!stream_) stream_.emplace(request.stream());
  stream_->Reached(holder, request.reached());
  return stream_->Lease(holder, request.wanted());
}

void Tasks::ReachedParts(const Holder& holder, const StreamParts::Positions& positions) {
  if (stream_) stream_->Reached(holder, positions);
}

void Tasks::FencedParts(ServerId server, const wire::FencedWorker& worker) {
  if (stream_) stream_->Fenced(server, worker);
}

uint64_t Tasks::Fenced(const Holder& holder, uint32_t shards) {
  if (stream_) stream_->Release(holder, shards);
  return ranges_.Release(holder);
}

uint64_t Tasks::EvaluateEvery() const {
  if (config_.evaluate_every_samples > 0) return config_.evaluate_every_samples;
  return config_.evaluate_every_epochs * config_.ranges.samples_per_epoch;
}

void Tasks::Reached(const Standing& now) {
  standing_ = {std::max(now.samples_trained, ranges_.samples_done()), now.samples_applied};
  const uint64_t every = EvaluateEvery();
  if (every == 0) return;
  const bool by_samples = config_.evaluate_every_samples > 0;
  const uint64_t samples = by_samples ? standing_.samples_applied : standing_.samples_trained;
  const uint64_t point = samples / every;
  // The final evaluation comes in the place of one at the end.
  if (point > reached_ / every && standing_.samples_trained < ranges_.samples_total() && !ranges_.cut_short()) {
    const uint64_t trained = by_samples ? standing_.samples_trained : point * every;
    due_ = EvaluationWork{.epoch = static_cast<uint32_t>(trained / config_.ranges.samples_per_epoch),
                          .at_samples = by_samples ? point * every : 0};
  }
  reached_ = std::max(reached_, samples);
}

uint64_t Tasks::LeftToMark() const {
  const auto left = [](uint64_t every, uint64_t passed, uint64_t reached) {
    const uint64_t next = (passed / every + 1) * every;
    return next - std::min(next, reached);
  };
  const uint64_t trained = standing_.samples_trained;
  const uint64_t leased = std::max(trained, ranges_.samples_done() + ranges_.samples_leased());
  const uint64_t to_epoch = left(config_.ranges.samples_per_epoch, trained, leased);
  if (config_.evaluate_every_samples == 0) return to_epoch;
  return std::min(to_epoch,
                  left(config_.evaluate_every_samples, reached_, standing_.samples_applied + (leased - trained)));
}

absl::StatusOr<bool> Tasks::FinishEvaluation(const Holder& holder, const EvaluationWork& work) {
  if (auto reported = reported_.find(holder); reported != reported_.end() && reported->second == work) return false;
  auto own = assigned_.find(holder);
  if (own == assigned_.end() || !(own->second == work)) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", holder.worker.value(), " reports the ",
                                                      work.final ? "final " : "", "evaluation of epoch ", work.epoch,
                                                      ", which is not its to make"));
  }
  assigned_.erase(own);
  reported_[holder] = work;
  complete_ = complete_ || work.final;
  return true;
}

void Tasks::Gone(const Holder& holder) {
  reported_.erase(holder);
  auto own = assigned_.find(holder);
  if (own == assigned_.end()) return;
  const auto point = [](const EvaluationWork& work) { return std::tie(work.epoch, work.at_samples); };
  if (!own->second.final && (!due_ || point(*due_) < point(own->second))) due_ = own->second;
  assigned_.erase(own);
}

bool Tasks::Busy(const Holder& holder) const { return assigned_.contains(holder) || ranges_.Holds(holder); }

namespace {

state::Evaluation ToState(const Holder& holder, const EvaluationWork& work) {
  state::Evaluation state;
  *state.mutable_holder() = scheduler::ToState(holder);
  state.set_epoch(work.epoch);
  state.set_final(work.final);
  state.set_at_samples(work.at_samples);
  return state;
}

EvaluationWork WorkOf(const state::Evaluation& state) {
  return {.epoch = state.epoch(), .final = state.final(), .at_samples = state.at_samples()};
}

}  // namespace

void Tasks::Save(state::Tasks& state) const {
  ranges_.Save(*state.mutable_ranges());
  if (due_) *state.mutable_due() = ToState(Holder(), *due_);
  for (const auto& [holder, work] : assigned_) *state.add_assigned() = ToState(holder, work);
  for (const auto& [holder, work] : reported_) *state.add_reported() = ToState(holder, work);
  state.set_complete(complete_);
  state.set_reached(reached_);
  if (stream_) stream_->Save(*state.mutable_stream());
}

void Tasks::Restore(const state::Tasks& state) {
  ranges_.Restore(state.ranges());
  if (state.has_due()) due_ = WorkOf(state.due());
  for (const state::Evaluation& one : state.assigned()) assigned_[FromState(one.holder())] = WorkOf(one);
  for (const state::Evaluation& one : state.reported()) reported_[FromState(one.holder())] = WorkOf(one);
  complete_ = state.complete();
  reached_ = state.reached();
  if (state.has_stream()) stream_.emplace(state.stream().stream()).Restore(state.stream());
  // An earlier version has not said it; nothing that its ranges have reached is due anew.
  if (config_.evaluate_every_samples == 0) reached_ = std::max(reached_, ranges_.samples_done());
}

void Tasks::GoOnFrom(const state::Tasks& state) {
  state::Tasks goes_on = state;
  goes_on.mutable_ranges()->clear_cut_short();
  Restore(goes_on);
  for (const Holder& holder : Holders()) {
    Gone(holder);
    Fenced(holder);
  }
  reported_.clear();
  complete_ = complete_ && ranges_.Finished();
}

std::vector<Holder> Tasks::Holders() const {
  std::vector<Holder> holders = ranges_.Holders();
  for (const auto& [holder, work] : assigned_) holders.push_back(holder);
  if (stream_) {
    for (const Holder& holder : stream_->Holders()) holders.push_back(holder);
  }
  return holders;
}

}  // namespace slackline::scheduler
