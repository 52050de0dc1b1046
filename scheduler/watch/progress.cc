#include "scheduler/watch/progress.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace slackline::scheduler {
namespace {

// Number of names kept of workers of earlier runs; later ones are counted without a name.
constexpr size_t kEarlierMax = 1000;

// What has been added to a total since it was last heard of; 0 when it has shrunk.
uint64_t Grown(uint64_t now, uint64_t before) { return now > before ? now - before : 0; }

// The same of seconds, which a peer may say badly.
double Grown(double now, double before) {
  const double grown = now - before;
  return std::isfinite(grown) && grown > 0 ? grown : 0;
}

// An earlier version tells no such number.
uint64_t AppliedOf(const wire::WorkerProgress& progress) {
  return progress.has_samples_applied() ? progress.samples_applied() : progress.samples();
}

// What a worker has done between two of its words.
ProgressTotals Difference(const wire::WorkerProgress& now, const wire::WorkerProgress& before) {
  ProgressTotals grown;
  grown.samples = Grown(now.samples(), before.samples());
  grown.samples_applied = Grown(AppliedOf(now), AppliedOf(before));
  grown.steps = Grown(now.steps(), before.steps());
  // A peer may report more than it trained.
  grown.correct = std::min(Grown(now.correct(), before.correct()), grown.samples);
  grown.unjudged = std::min(Grown(now.samples_unjudged(), before.samples_unjudged()), grown.samples);
  grown.without_loss = std::min(Grown(now.samples_without_loss(), before.samples_without_loss()), grown.samples);
  const double loss = now.loss_sum() - before.loss_sum();
  if (std::isfinite(loss)) grown.loss_sum = loss;
  grown.compute_seconds = Grown(now.compute_seconds(), before.compute_seconds());
  grown.wait_seconds = Grown(now.wait_seconds(), before.wait_seconds());
  grown.data_seconds = Grown(now.data_seconds(), before.data_seconds());
  grown.push_seconds = Grown(now.push_seconds(), before.push_seconds());
  grown.pull_seconds = Grown(now.pull_seconds(), before.pull_seconds());
  grown.pushes_applied = Grown(now.pushes_applied(), before.pushes_applied());
  grown.pushes_discarded = Grown(now.pushes_discarded(), before.pushes_discarded());
  grown.pushes_quarantined = Grown(now.pushes_quarantined(), before.pushes_quarantined());
  grown.pushes_lost = Grown(now.pushes_lost(), before.pushes_lost());
  grown.pushed_bytes = Grown(now.pushed_bytes(), before.pushed_bytes());
  grown.pulled_bytes = Grown(now.pulled_bytes(), before.pulled_bytes());
  grown.staleness_sum = Grown(now.staleness_sum(), before.staleness_sum());
  grown.staleness_answers = Grown(now.staleness_answers(), before.staleness_answers());
  return grown;
}

void AddStaleness(const wire::WorkerProgress& now, const wire::WorkerProgress& before, StalenessCounts& counts) {
  const int known = std::min<int>(now.staleness_counts_size(), StalenessCounts::kBuckets);
  for (int i = 0; i < known; ++i) {
    const uint64_t counted = i < before.staleness_counts_size() ? before.staleness_counts(i) : 0;
    counts.AddToBucket(i, Grown(now.staleness_counts(i), counted));
  }
}

// Adds a point. `window`: time that rates of the series cover.
void Extend(SampleSeries& series, absl::Duration window, absl::Time now, uint64_t samples) {
  // The time before the first sample is no time of training.
  const bool waits = series.size() == 1 && series.back().second == samples;
  // Heartbeats of many workers come close together: a few hundred points are enough for any window.
  if (waits || (series.size() > 1 && now - (series.end() - 2)->first < window / 200)) {
    series.back() = {now, samples};
  } else {
    series.emplace_back(now, samples);
  }
  while (series.size() > 2 && now - series[1].first >= window) series.pop_front();
}

// Returns samples per second over the window; 0 if the last point is older than it.
double Rate(const SampleSeries& series, absl::Duration window, absl::Time now) {
  if (series.size() < 2 || now - series.back().first > window) return 0;
  const double seconds = absl::ToDoubleSeconds(series.back().first - series.front().first);
  const uint64_t samples = Grown(series.back().second, series.front().second);
  return seconds > 0 ? static_cast<double>(samples) / seconds : 0;
}

}  // namespace

std::optional<double> AccuracyOf(const ProgressTotals& now, const ProgressTotals& before) {
  const uint64_t samples = Grown(now.samples, before.samples), unjudged = Grown(now.unjudged, before.unjudged);
  if (samples <= unjudged) return std::nullopt;
  return static_cast<double>(Grown(now.correct, before.correct)) / static_cast<double>(samples - unjudged);
}

std::optional<double> LossOf(const ProgressTotals& now, const ProgressTotals& before) {
  const uint64_t samples = Grown(now.samples, before.samples), without = Grown(now.without_loss, before.without_loss);
  if (samples <= without) return std::nullopt;
  return (now.loss_sum - before.loss_sum) / static_cast<double>(samples - without);
}

void ProgressTotals::Add(const ProgressTotals& other) {
  samples += other.samples;
  samples_applied += other.samples_applied;
  steps += other.steps;
  loss_sum += other.loss_sum;
  correct += other.correct;
  unjudged += other.unjudged;
  without_loss += other.without_loss;
  compute_seconds += other.compute_seconds;
  wait_seconds += other.wait_seconds;
  data_seconds += other.data_seconds;
  push_seconds += other.push_seconds;
  pull_seconds += other.pull_seconds;
  pushes_applied += other.pushes_applied;
  pushes_discarded += other.pushes_discarded;
  pushes_quarantined += other.pushes_quarantined;
  pushes_lost += other.pushes_lost;
  pushed_bytes += other.pushed_bytes;
  pulled_bytes += other.pulled_bytes;
  staleness_sum += other.staleness_sum;
  staleness_answers += other.staleness_answers;
}

void Progress::Heard(const Holder& holder, const wire::WorkerProgress& progress, bool in_clock, absl::Time now) {
  Heartbeats& worker = workers_[holder.worker];
  if (worker.holder != holder) {
    worker.last.Clear();
    worker.samples.clear();
    worker.unreported.clear();
    worker.holder = holder;
  }
  const wire::WorkerProgress& before = worker.last;
  RaiseNorm(progress.gradient_norm_max());
  if (progress.has_energy()) energy_.Heard(holder.worker, progress.energy());
  if (progress.steps() < before.steps()) {
    // Overtaken; what happened between the last two words is in it nevertheless.
    if (in_clock && progress.has_slack_max()) ObserveSlack(progress);
    return;
  }
  const bool restored = before.steps() > 0;
  const ProgressTotals grown = Difference(progress, before);
  totals_.Add(grown);
  worker.totals.Add(grown);
  for (auto& [server, loss] : worker.unreported) {
    // A step needs every server: one that was made after the restore has brought the report, if there was a loss.
    const bool stepped = now >= loss.after && progress.steps() > loss.steps.value_or(progress.steps());
    if (grown.pushes_lost > 0 || stepped) loss.Settle();
    if (now >= loss.after && !loss.steps) loss.steps = progress.steps();
  }
  AddStaleness(progress, before, staleness_);
  staleness_max_ = std::max(staleness_max_, progress.staleness_max());
  worker.last = progress;
  worker.in_clock = in_clock;
  // After a restart of the scheduler, a worker's first report covers all that it trained meanwhile, and says nothing
  // about its speed.
  if (worker.samples.empty() && restored) {
    samples_.clear();
    samples_lately_.clear();
  }
  Extend(worker.samples, window_, now, progress.samples());
  Extend(samples_, window_, now, totals_.samples);
  Extend(samples_lately_, kLately, now, totals_.samples);
  if (in_clock) ObserveSlack(progress);
}

void Progress::ObserveSlack(const wire::WorkerProgress& progress) {
  if (progress.has_slack_max()) {
    RaiseSlack(progress.slack_max());
    return;
  }
  uint64_t clock_min = progress.clock();
  uint64_t clock_max = progress.clock();
  for (const auto& [id, worker] : workers_) {
    if (!worker.in_clock) continue;
    clock_min = std::min(clock_min, worker.last.clock());
    clock_max = std::max(clock_max, worker.last.clock());
  }
  RaiseSlack(clock_max - clock_min);
}

void Progress::RaiseSlack(uint64_t slack) {
  slack_ = std::max(slack_, slack);
  slack_max_ = std::max(slack_max_, slack);
  slack_peak_ = std::max(slack_peak_, slack);
}

void Progress::RaiseNorm(double norm) {
  if (std::isnan(norm)) return;
  norm_ = std::max(norm_, norm);
  norm_peak_ = std::max(norm_peak_, norm);
}

void Progress::Restored(ServerId server, const Holder& holder, const wire::RestoredWorker& restored, absl::Time after) {
  const auto found = workers_.find(holder.worker);
  if (found == workers_.end() || found->second.holder != holder) return;
  UnreportedLoss& loss = found->second.unreported[server];
  // A server that dies again before its next snapshot goes on from where it went on before.
  const uint64_t from = std::max(restored.clock_sum(), loss.told_to.value() * restored.shards());
  loss.to = Clock64(std::max(loss.to.value(), found->second.last.clock()));
  loss.count = std::max(loss.count, Grown(found->second.last.clock() * restored.shards(), from));
  loss.after = after;
  loss.steps.reset();
}

uint64_t Progress::TakeUnreported(const Holder& holder) {
  const auto found = workers_.find(holder.worker);
  if (found == workers_.end() || found->second.holder != holder) return 0;
  Heartbeats& worker = found->second;
  uint64_t lost = 0;
  for (auto& [server, loss] : worker.unreported) {
    lost += loss.count;
    loss.Settle();
  }
  worker.totals.pushes_lost += lost;
  totals_.pushes_lost += lost;
  return lost;
}

void Progress::Left(const Holder& holder) {
  auto found = workers_.find(holder.worker);
  if (found == workers_.end() || found->second.holder != holder) return;
  found->second.in_clock = false;
  found->second.samples.clear();
}

void Progress::Forget(WorkerId worker) {
  energy_.Forget(worker);
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return;
  forgotten_.Add(found->second.totals);
  workers_.erase(found);
}

const ProgressReport& Progress::Report() {
  const ProgressTotals& before = latest_.totals;
  if (const auto loss = LossOf(totals_, before)) latest_.loss = loss;
  if (const auto accuracy = AccuracyOf(totals_, before)) latest_.accuracy = accuracy;
  if (const uint64_t answers = totals_.staleness_answers - before.staleness_answers; answers > 0) {
    latest_.staleness_mean =
        static_cast<double>(totals_.staleness_sum - before.staleness_sum) / static_cast<double>(answers);
  }
  latest_.staleness = staleness_.Since(staleness_reported_);
  staleness_reported_ = staleness_;
  latest_.staleness_max = staleness_max_;
  latest_.slack = slack_;
  latest_.gradient_norm_max = std::exchange(norm_, 0);
  latest_.totals = totals_;
  slack_ = 0;
  return latest_;
}

double Progress::SamplesPerSecond(absl::Time now) const { return Rate(samples_, window_, now); }

double Progress::SamplesPerSecondLately(absl::Time now) const { return Rate(samples_lately_, kLately, now); }

double Progress::SamplesPerSecond(const Holder& holder, absl::Time now) const {
  auto found = workers_.find(holder.worker);
  return found != workers_.end() && found->second.holder == holder ? Rate(found->second.samples, window_, now) : 0;
}

ProgressTotals Progress::TotalsOf(WorkerId worker) const {
  auto found = workers_.find(worker);
  return found != workers_.end() ? found->second.totals : ProgressTotals();
}

const wire::WorkerProgress* Progress::Of(const Holder& holder) const {
  auto found = workers_.find(holder.worker);
  return found != workers_.end() && found->second.holder == holder ? &found->second.last : nullptr;
}

namespace {

state::Totals ToState(const ProgressTotals& totals) {
  state::Totals state;
  state.set_samples(totals.samples);
  state.set_samples_applied(totals.samples_applied);
  state.set_steps(totals.steps);
  state.set_loss_sum(totals.loss_sum);
  state.set_correct(totals.correct);
  state.set_samples_unjudged(totals.unjudged);
  state.set_samples_without_loss(totals.without_loss);
  state.set_compute_seconds(totals.compute_seconds);
  state.set_wait_seconds(totals.wait_seconds);
  state.set_data_seconds(totals.data_seconds);
  state.set_push_seconds(totals.push_seconds);
  state.set_pull_seconds(totals.pull_seconds);
  state.set_pushes_applied(totals.pushes_applied);
  state.set_pushes_discarded(totals.pushes_discarded);
  state.set_pushes_quarantined(totals.pushes_quarantined);
  state.set_pushes_lost(totals.pushes_lost);
  state.set_pushed_bytes(totals.pushed_bytes);
  state.set_pulled_bytes(totals.pulled_bytes);
  state.set_staleness_sum(totals.staleness_sum);
  state.set_staleness_answers(totals.staleness_answers);
  return state;
}

ProgressTotals FromState(const state::Totals& state) {
  ProgressTotals totals;
  totals.samples = state.samples();
  totals.samples_applied = state.has_samples_applied() ? state.samples_applied() : state.samples();
  totals.steps = state.steps();
  totals.loss_sum = state.loss_sum();
  totals.correct = state.correct();
  totals.unjudged = state.samples_unjudged();
  totals.without_loss = state.samples_without_loss();
  totals.compute_seconds = state.compute_seconds();
  totals.wait_seconds = state.wait_seconds();
  totals.data_seconds = state.data_seconds();
  totals.push_seconds = state.push_seconds();
  totals.pull_seconds = state.pull_seconds();
  totals.pushes_applied = state.pushes_applied();
  totals.pushes_discarded = state.pushes_discarded();
  totals.pushes_quarantined = state.pushes_quarantined();
  totals.pushes_lost = state.pushes_lost();
  totals.pushed_bytes = state.pushed_bytes();
  totals.pulled_bytes = state.pulled_bytes();
  totals.staleness_sum = state.staleness_sum();
  totals.staleness_answers = state.staleness_answers();
  return totals;
}

}  // namespace

void Progress::Save(state::Progress& state) const {
  *state.mutable_totals() = ToState(totals_);
  for (const auto& [id, worker] : workers_) {
    state::WorkerTotals& out = *state.add_workers();
    *out.mutable_holder() = scheduler::ToState(worker.holder);
    *out.mutable_last() = worker.last;
    *out.mutable_totals() = ToState(worker.totals);
    for (const auto& [server, loss] : worker.unreported) {
      state::UnreportedLoss& unreported = *out.add_unreported();
      unreported.set_server(server.value());
      unreported.set_count(loss.count);
      unreported.set_to(loss.to.value());
      unreported.set_told_to(loss.told_to.value());
    }
  }
  *state.mutable_forgotten() = ToState(forgotten_);
  for (const auto& [name, totals] : earlier_) {
    state::NamedTotals& out = *state.add_earlier();
    out.set_name(name);
    *out.mutable_totals() = ToState(totals);
  }
  *state.mutable_energy() = energy_.Save();
  for (size_t i = 0; i < staleness_.used(); ++i) state.add_staleness_counts(staleness_.InBucket(i));
  state.set_staleness_max(staleness_max_);
  state.set_slack_max(slack_max_);
  if (latest_.loss) state.set_loss(*latest_.loss);
  if (latest_.accuracy) state.set_accuracy(*latest_.accuracy);
}

void Progress::Restore(const state::Progress& state) {
  totals_ = FromState(state.totals());
  forgotten_ = FromState(state.forgotten());
  earlier_.clear();
  for (const state::NamedTotals& one : state.earlier()) earlier_[one.name()].Add(FromState(one.totals()));
  energy_.Restore(state.energy());
  for (const state::WorkerTotals& one : state.workers()) {
    Heartbeats& worker = workers_[WorkerId(one.holder().worker())];
    worker.holder = scheduler::FromState(one.holder());
    worker.last = one.last();
    worker.totals = FromState(one.totals());
    for (const state::UnreportedLoss& from : one.unreported()) {
      UnreportedLoss& loss = worker.unreported[ServerId(from.server())];
      loss.count = from.count();
      loss.to = Clock64(from.to());
      loss.told_to = Clock64(from.told_to());
    }
    if (one.last().has_energy()) energy_.Know(WorkerId(one.holder().worker()), one.last().energy());
  }
  const int known = std::min<int>(state.staleness_counts_size(), StalenessCounts::kBuckets);
  for (int i = 0; i < known; ++i) staleness_.AddToBucket(i, state.staleness_counts(i));
  staleness_reported_ = staleness_;
  staleness_max_ = state.staleness_max();
  slack_max_ = state.slack_max();
  latest_.totals = totals_;
  if (state.has_loss()) latest_.loss = state.loss();
  if (state.has_accuracy()) latest_.accuracy = state.accuracy();
}

void Progress::Resume(const state::Progress& state, const std::map<WorkerId, std::string>& names) {
  state::Progress alone = state;
  alone.clear_workers();
  Restore(alone);
  for (const state::WorkerTotals& one : state.workers()) {
    const auto name = names.find(WorkerId(one.holder().worker()));
    const bool kept = name != names.end() && (earlier_.contains(name->second) || earlier_.size() < kEarlierMax);
    (kept ? earlier_[name->second] : forgotten_).Add(FromState(one.totals()));
  }
}

}  // namespace slackline::scheduler
