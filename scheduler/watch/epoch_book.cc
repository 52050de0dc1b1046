#include "scheduler/watch/epoch_book.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace slackline::scheduler {
namespace {

// Of a peer.
double SecondsOr0(double seconds) { return std::isfinite(seconds) ? std::max(0.0, seconds) : 0; }

EpochFigures::WorkerSeconds SecondsOf(const state::Totals& now, const state::Totals& before, uint32_t epochs) {
  const auto share = [epochs](double later, double earlier) { return SecondsOr0(later - earlier) / epochs; };
  // Of workers, computing has waiting for data in it.
  return {
      .compute = share(now.compute_seconds() - now.data_seconds(), before.compute_seconds() - before.data_seconds()),
      .data = share(now.data_seconds(), before.data_seconds()),
      .wait = share(now.wait_seconds(), before.wait_seconds()),
      .push = share(now.push_seconds(), before.push_seconds()),
      .pull = share(now.pull_seconds(), before.pull_seconds())};
}

state::EpochFigures ToState(const EpochFigures& row) {
  state::EpochFigures state;
  state.set_epoch(row.epoch);
  state.set_end_s(row.end_s);
  state.set_train_s(row.train_s);
  if (row.loss) state.set_loss(*row.loss);
  if (row.accuracy) state.set_accuracy(*row.accuracy);
  state.set_validation_s(row.validation_s);
  state.set_test_s(row.test_s);
  if (row.test_loss) state.set_test_loss(*row.test_loss);
  if (row.test_accuracy) state.set_test_accuracy(*row.test_accuracy);
  if (row.top5_accuracy) state.set_top5_accuracy(*row.top5_accuracy);
  AddNamedValues(row.test_values, state.mutable_test_values());
  if (row.joules) state.set_joules(*row.joules);
  state.set_compute_s(row.seconds.compute);
  state.set_data_s(row.seconds.data);
  state.set_wait_s(row.seconds.wait);
  state.set_push_s(row.seconds.push);
  state.set_pull_s(row.seconds.pull);
  state.set_samples(row.samples);
  state.set_samples_applied(row.samples_applied);
  return state;
}

EpochFigures FromState(const state::EpochFigures& state) {
  EpochFigures row;
  row.epoch = state.epoch();
  row.end_s = state.end_s();
  row.samples = state.samples();
  row.samples_applied = state.samples_applied();
  row.train_s = state.train_s();
  if (state.has_loss()) row.loss = state.loss();
  if (state.has_accuracy()) row.accuracy = state.accuracy();
  row.validation_s = state.validation_s();
  row.test_s = state.test_s();
  if (state.has_test_loss()) row.test_loss = state.test_loss();
  if (state.has_test_accuracy()) row.test_accuracy = state.test_accuracy();
  if (state.has_top5_accuracy()) row.top5_accuracy = state.top5_accuracy();
  row.test_values = NamedValuesIn(state.test_values());
  if (state.has_joules()) row.joules = state.joules();
  row.seconds = {.compute = SecondsOr0(state.compute_s()),
                 .data = SecondsOr0(state.data_s()),
                 .wait = SecondsOr0(state.wait_s()),
                 .push = SecondsOr0(state.push_s()),
                 .pull = SecondsOr0(state.pull_s())};
  return row;
}

}  // namespace

void EpochBook::Over(uint32_t epochs, const Standing& now) {
  if (epochs <= epochs_) return;
  const uint32_t completed = epochs - epochs_;
  EpochFigures row;
  row.end_s = now.time_s;
  row.samples = now.totals.samples();
  row.samples_applied = now.totals.samples_applied();
  // Epochs that end together have equal shares.
  row.train_s = std::max(0.0, now.time_s - last_.time_s - evaluating_s_) / completed;
  row.loss = LossOf(now.totals, last_.totals);
  row.accuracy = AccuracyOf(now.totals, last_.totals);
  row.seconds = SecondsOf(now.totals, last_.totals, completed);
  if (now.joules) row.joules = std::max(0.0, *now.joules - last_.joules.value_or(0)) / completed;
  for (row.epoch = epochs_ + 1; row.epoch <= epochs && rows_.size() < kRowsMax; ++row.epoch) rows_.push_back(row);
  epochs_ = epochs;
  last_ = now;
  evaluating_s_ = 0;
  news_ = true;
}

void EpochBook::Evaluated(const wire::EvaluationReport& report, bool alone) {
  const double seconds = SecondsOr0(report.seconds());
  if (alone && !report.final()) evaluating_s_ += seconds;
  // Between the ends of two epochs.
  if (report.at_samples() > 0 && !report.final()) return;
  // One of the last.
  const auto row =
      std::find_if(rows_.rbegin(), rows_.rend(), [&](const EpochFigures& one) { return one.epoch == report.epoch(); });
  if (row == rows_.rend()) return;
  (report.final() ? row->test_s : row->validation_s) = seconds;
  row->test_loss = TestLossOf(report);
  row->test_accuracy = TestAccuracyOf(report);
  row->test_values = NamedValuesIn(report.values());
  if (report.has_top5_accuracy()) row->top5_accuracy = report.top5_accuracy();
  news_ = true;
}

std::optional<std::vector<EpochFigures>> EpochBook::TakeNews() {
  if (!std::exchange(news_, false)) return std::nullopt;
  return rows_;
}

state::Epochs EpochBook::Save() const {
  state::Epochs state;
  for (const EpochFigures& row : rows_) *state.add_done() = ToState(row);
  state.set_epochs(epochs_);
  state.set_samples(last_.totals.samples());
  state.set_loss_sum(last_.totals.loss_sum());
  state.set_correct(last_.totals.correct());
  state.set_samples_unjudged(last_.totals.samples_unjudged());
  state.set_samples_without_loss(last_.totals.samples_without_loss());
  state.set_joules(last_.joules.value_or(0));
  state.set_evaluating_s(evaluating_s_);
  state.set_compute_s(last_.totals.compute_seconds());
  state.set_data_s(last_.totals.data_seconds());
  state.set_wait_s(last_.totals.wait_seconds());
  state.set_push_s(last_.totals.push_seconds());
  state.set_pull_s(last_.totals.pull_seconds());
  return state;
}

void EpochBook::Restore(const state::Epochs& state) {
  rows_.clear();
  for (const state::EpochFigures& row : state.done()) {
    if (rows_.size() < kRowsMax) rows_.push_back(FromState(row));
  }
  // An earlier version has kept rows alone.
  epochs_ = std::max(state.epochs(), rows_.empty() ? 0 : rows_.back().epoch);
  last_ = {};
  if (!rows_.empty()) last_.time_s = rows_.back().end_s;
  last_.totals.set_samples(state.samples());
  last_.totals.set_loss_sum(state.loss_sum());
  last_.totals.set_correct(state.correct());
  last_.totals.set_samples_unjudged(state.samples_unjudged());
  last_.totals.set_samples_without_loss(state.samples_without_loss());
  last_.joules = state.joules();
  last_.totals.set_compute_seconds(SecondsOr0(state.compute_s()));
  last_.totals.set_data_seconds(SecondsOr0(state.data_s()));
  last_.totals.set_wait_seconds(SecondsOr0(state.wait_s()));
  last_.totals.set_push_seconds(SecondsOr0(state.push_s()));
  last_.totals.set_pull_seconds(SecondsOr0(state.pull_s()));
  evaluating_s_ = SecondsOr0(state.evaluating_s());
  news_ = true;
}

}  // namespace slackline::scheduler
