#include "scheduler/tasks.h"

#include "absl/strings/str_cat.h"

namespace slackline::scheduler {

Work Tasks::Next(const Asker& asker) {
  if (complete_) return LeaveWork{};
  if (auto own = assigned_.find(asker.holder); own != assigned_.end()) return own->second;
  if (ranges_.Finished()) return Final(asker);
  if (!asker.live) {
    if (ranges_.HasFree()) return RegisterAgainWork{};
    return StandbyWork{};
  }
  // An evaluation uses the weights of now: it cannot wait until the ranges are gone.
  if (due_ && asker.swift && !ranges_.Holds(asker.holder)) {
    const EvaluationWork work = *due_;
    due_.reset();
    assigned_[asker.holder] = work;
    return work;
  }
  if (std::optional<DataRange> range = ranges_.Lease(asker.holder, asker.pace)) return *range;
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

absl::StatusOr<uint32_t> Tasks::FinishRange(const Holder& holder, RangeId range) {
  return Completed(ranges_.Done(holder, range));
}

absl::StatusOr<uint32_t> Tasks::LeaveRange(const Holder& holder, RangeId range, uint64_t done_to) {
  return Completed(ranges_.DoneTo(holder, range, done_to));
}

absl::StatusOr<uint32_t> Tasks::Completed(absl::StatusOr<uint32_t> completed) {
  if (!completed.ok() || *completed == 0 || config_.evaluate_every_epochs == 0) return completed;
  const uint32_t done = ranges_.epochs_done();
  for (uint32_t epoch = done - *completed + 1; epoch <= done; ++epoch) {
    if (epoch % config_.evaluate_every_epochs == 0 && epoch < config_.ranges.epochs && !ranges_.cut_short())
      due_ = EvaluationWork{epoch};
  }
  return completed;
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
  if (!own->second.final && (!due_ || due_->epoch < own->second.epoch)) due_ = own->second;
  assigned_.erase(own);
}

bool Tasks::Busy(const Holder& holder) const { return assigned_.contains(holder) || ranges_.Holds(holder); }

namespace {

state::Evaluation ToState(const Holder& holder, const EvaluationWork& work) {
  state::Evaluation state;
  *state.mutable_holder() = scheduler::ToState(holder);
  state.set_epoch(work.epoch);
  state.set_final(work.final);
  return state;
}

EvaluationWork WorkOf(const state::Evaluation& state) { return {state.epoch(), state.final()}; }

}  // namespace

void Tasks::Save(state::Tasks& state) const {
  ranges_.Save(*state.mutable_ranges());
  if (due_) *state.mutable_due() = ToState(Holder(), *due_);
  for (const auto& [holder, work] : assigned_) *state.add_assigned() = ToState(holder, work);
  for (const auto& [holder, work] : reported_) *state.add_reported() = ToState(holder, work);
  state.set_complete(complete_);
}

void Tasks::Restore(const state::Tasks& state) {
  ranges_.Restore(state.ranges());
  if (state.has_due()) due_ = WorkOf(state.due());
  for (const state::Evaluation& one : state.assigned()) assigned_[FromState(one.holder())] = WorkOf(one);
  for (const state::Evaluation& one : state.reported()) reported_[FromState(one.holder())] = WorkOf(one);
  complete_ = state.complete();
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
  return holders;
}

}  // namespace slackline::scheduler
