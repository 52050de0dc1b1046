#include "scheduler/epoch_book.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace slackline::scheduler {
namespace {

// Of a peer.
double SecondsOr0(double seconds) { return std::isfinite(seconds) ? std::max(0.0, seconds) : 0; }

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
  if (row.joules) state.set_joules(*row.joules);
  return state;
}

EpochFigures FromState(const state::EpochFigures& state) {
  EpochFigures row;
  row.epoch = state.epoch();
  row.end_s = state.end_s();
  row.train_s = state.train_s();
  if (state.has_loss()) row.loss = state.loss();
  if (state.has_accuracy()) row.accuracy = state.accuracy();
  row.validation_s = state.validation_s();
  row.test_s = state.test_s();
  if (state.has_test_loss()) row.test_loss = state.test_loss();
  if (state.has_test_accuracy()) row.test_accuracy = state.test_accuracy();
  if (state.has_top5_accuracy()) row.top5_accuracy = state.top5_accuracy();
  if (state.has_joules()) row.joules = state.joules();
  return row;
}

}  // namespace

void EpochBook::Completed(uint32_t epoch, uint32_t completed, const Standing& now) {
  if (completed == 0) return;
  const uint64_t samples = now.totals.samples - std::min(now.totals.samples, last_.totals.samples);
  EpochFigures row;
  row.end_s = now.time_s;
  // Epochs that end together have equal shares.
  row.train_s = std::max(0.0, now.time_s - last_.time_s - evaluating_s_) / completed;
  if (samples > 0) {
    row.loss = (now.totals.loss_sum - last_.totals.loss_sum) / static_cast<double>(samples);
    row.accuracy = static_cast<double>(now.totals.correct - std::min(now.totals.correct, last_.totals.correct)) /
                   static_cast<double>(samples);
  }
  if (now.joules) row.joules = std::max(0.0, *now.joules - last_.joules.value_or(0)) / completed;
  for (row.epoch = epoch - completed + 1; row.epoch <= epoch && rows_.size() < kRowsMax; ++row.epoch) {
    rows_.push_back(row);
  }
  last_ = now;
  evaluating_s_ = 0;
  news_ = true;
}

void EpochBook::Evaluated(const wire::EvaluationReport& report, bool alone) {
  const double seconds = SecondsOr0(report.seconds());
  if (alone && !report.final()) evaluating_s_ += seconds;
  // One of the last.
  const auto row =
      std::find_if(rows_.rbegin(), rows_.rend(), [&](const EpochFigures& one) { return one.epoch == report.epoch(); });
  if (row == rows_.rend()) return;
  (report.final() ? row->test_s : row->validation_s) = seconds;
  row->test_loss = report.loss();
  row->test_accuracy = report.accuracy();
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
  state.set_samples(last_.totals.samples);
  state.set_loss_sum(last_.totals.loss_sum);
  state.set_correct(last_.totals.correct);
  state.set_joules(last_.joules.value_or(0));
  state.set_evaluating_s(evaluating_s_);
  return state;
}

void EpochBook::Restore(const state::Epochs& state) {
  rows_.clear();
  for (const state::EpochFigures& row : state.done()) {
    if (rows_.size() < kRowsMax) rows_.push_back(FromState(row));
  }
  last_ = {};
  if (!rows_.empty()) last_.time_s = rows_.back().end_s;
  last_.totals.samples = state.samples();
  last_.totals.loss_sum = state.loss_sum();
  last_.totals.correct = state.correct();
  last_.joules = state.joules();
  evaluating_s_ = SecondsOr0(state.evaluating_s());
  news_ = true;
}

}  // namespace slackline::scheduler
