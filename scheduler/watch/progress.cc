#include "scheduler/watch/progress.h"

#include <cmath>

namespace slackline::scheduler {
namespace {

// Number of names kept of workers of earlier runs; later ones are counted without a name.
constexpr size_t kEarlierMax = 1000;

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
  if (progress.has_energy()) energy_.Heard(holder.worker, progress.energy(), now);
  if (progress.steps() < before.steps()) {
    // Overtaken; what happened between the last two words is in it nevertheless.
    if (in_clock && progress.has_slack_max()) ObserveSlack(progress);
    return;
  }
  const bool restored = before.steps() > 0;
  const state::Totals grown = GrowthOf(progress, before);
  Add(grown, totals_);
  Add(grown, worker.totals);
  for (auto& [server, loss] : worker.unreported) {
    // A step needs every server: one that was made after the restore has brought the report, if there was a loss.
    const bool stepped = now >= loss.after && progress.steps() > loss.steps.value_or(progress.steps());
    if (grown.pushes_lost() > 0 || stepped) loss.Settle();
    if (now >= loss.after && !loss.steps) loss.steps = progress.steps();
  }
  if (progress.steps() > before.steps()) NoteLearningRate(progress);
  AddStaleness(progress, before, staleness_);
  staleness_max_ = std::max(staleness_max_, progress.staleness_max());
  worker.last = progress;
  if (worker.last.has_energy()) DropSamples(*worker.last.mutable_energy());
  SetClock(worker, in_clock ? std::optional(progress.clock()) : std::nullopt);
  // After a restart of the scheduler, a worker's first report covers all that it trained meanwhile, and says nothing
  // about its speed.
  if (worker.samples.empty() && restored) {
    samples_.clear();
    samples_lately_.clear();
  }
  Extend(worker.samples, window_, now, progress.samples());
  Extend(samples_, window_, now, totals_.samples());
  Extend(samples_lately_, kLately, now, totals_.samples());
  if (in_clock) ObserveSlack(progress);
}

void Progress::SetClock(Heartbeats& worker, std::optional<uint64_t> clock) {
  if (worker.clock) clocks_.erase(clocks_.find(*worker.clock));
  worker.clock = clock;
  if (clock) clocks_.insert(*clock);
}

void Progress::ObserveSlack(const wire::WorkerProgress& progress) {
  if (progress.has_slack_max()) {
    RaiseSlack(progress.slack_max());
    return;
  }
  RaiseSlack(*clocks_.rbegin() - *clocks_.begin());
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

void Progress::NoteLearningRate(const wire::WorkerProgress& progress) {
  latest_.learning_rate.reset();
  if (progress.has_learning_rate() && std::isfinite(progress.learning_rate())) {
    latest_.learning_rate = progress.learning_rate();
  }
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
  for (state::Totals* totals : {&worker.totals, &totals_}) totals->set_pushes_lost(totals->pushes_lost() + lost);
  return lost;
}

void Progress::Left(const Holder& holder) {
  auto found = workers_.find(holder.worker);
  if (found == workers_.end() || found->second.holder != holder) return;
  SetClock(found->second, std::nullopt);
  found->second.samples.clear();
}

void Progress::Forget(WorkerId worker) {
  energy_.Forget(worker);
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return;
  Add(found->second.totals, forgotten_);
  SetClock(found->second, std::nullopt);
  workers_.erase(found);
}

const ProgressReport& Progress::Report() {
  const state::Totals& before = latest_.totals;
  if (const auto loss = LossOf(totals_, before)) latest_.loss = loss;
  if (const auto accuracy = AccuracyOf(totals_, before)) latest_.accuracy = accuracy;
  if (NamedValues values = MeanValues(); !values.empty()) latest_.values = std::move(values);
  if (const uint64_t answers = totals_.staleness_answers() - before.staleness_answers(); answers > 0) {
    latest_.staleness_mean =
        static_cast<double>(totals_.staleness_sum() - before.staleness_sum()) / static_cast<double>(answers);
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

NamedValues Progress::MeanValues() const {
  NamedValues means;
  std::map<std::string, double> reported;
  for (const auto& [id, worker] : workers_) {
    if (!worker.clock) continue;
    for (const auto& [name, value] : NamedValuesIn(worker.last.values())) {
      if (means.size() >= kMetricNamesMax && !means.contains(name)) continue;
      means[name] += (value - means[name]) / ++reported[name];
    }
  }
  return means;
}

double Progress::SamplesPerSecond(absl::Time now) const { return Rate(samples_, window_, now); }

double Progress::SamplesPerSecondLately(absl::Time now) const { return Rate(samples_lately_, kLately, now); }

double Progress::SamplesPerSecond(const Holder& holder, absl::Time now) const {
  auto found = workers_.find(holder.worker);
  return found != workers_.end() && found->second.holder == holder ? Rate(found->second.samples, window_, now) : 0;
}

state::Totals Progress::TotalsOf(WorkerId worker) const {
  auto found = workers_.find(worker);
  return found != workers_.end() ? found->second.totals : state::Totals();
}

const wire::WorkerProgress* Progress::Of(const Holder& holder) const {
  auto found = workers_.find(holder.worker);
  return found != workers_.end() && found->second.holder == holder ? &found->second.last : nullptr;
}

void Progress::Save(state::Progress& state) const {
  *state.mutable_totals() = totals_;
  for (const auto& [id, worker] : workers_) {
    state::WorkerTotals& out = *state.add_workers();
    *out.mutable_holder() = scheduler::ToState(worker.holder);
    *out.mutable_last() = worker.last;
    *out.mutable_totals() = worker.totals;
    for (const auto& [server, loss] : worker.unreported) {
      state::UnreportedLoss& unreported = *out.add_unreported();
      unreported.set_server(server.value());
      unreported.set_count(loss.count);
      unreported.set_to(loss.to.value());
      unreported.set_told_to(loss.told_to.value());
    }
  }
  *state.mutable_forgotten() = forgotten_;
  for (const auto& [name, totals] : earlier_) {
    state::NamedTotals& out = *state.add_earlier();
    out.set_name(name);
    *out.mutable_totals() = totals;
  }
  *state.mutable_energy() = energy_.Save();
  for (size_t i = 0; i < staleness_.used(); ++i) state.add_staleness_counts(staleness_.InBucket(i));
  state.set_staleness_max(staleness_max_);
  state.set_slack_max(slack_max_);
  if (latest_.loss) state.set_loss(*latest_.loss);
  if (latest_.accuracy) state.set_accuracy(*latest_.accuracy);
  AddNamedValues(latest_.values, state.mutable_values());
}

void Progress::Restore(const state::Progress& state) {
  totals_ = Completed(state.totals());
  forgotten_ = Completed(state.forgotten());
  earlier_.clear();
  for (const state::NamedTotals& one : state.earlier()) Add(Completed(one.totals()), earlier_[one.name()]);
  energy_.Restore(state.energy());
  for (const state::WorkerTotals& one : state.workers()) {
    Heartbeats& worker = workers_[WorkerId(one.holder().worker())];
    worker.holder = scheduler::FromState(one.holder());
    worker.last = one.last();
    worker.totals = Completed(one.totals());
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
  latest_.values = NamedValuesIn(state.values());
}

void Progress::Resume(const state::Progress& state, const std::map<WorkerId, std::string>& names) {
  state::Progress alone = state;
  alone.clear_workers();
  Restore(alone);
  for (const state::WorkerTotals& one : state.workers()) {
    const auto name = names.find(WorkerId(one.holder().worker()));
    const bool kept = name != names.end() && (earlier_.contains(name->second) || earlier_.size() < kEarlierMax);
    Add(Completed(one.totals()), kept ? earlier_[name->second] : forgotten_);
  }
}

}  // namespace slackline::scheduler
