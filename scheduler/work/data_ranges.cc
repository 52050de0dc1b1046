#include "scheduler/work/data_ranges.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/split_mix.h"
#include "scheduler/base/forgotten.h"

namespace slackline::scheduler {
namespace {

// Largest distance of a block that is with the worker, or nearly so.
constexpr uint8_t kNearMax = 1;

// What a peer says its speed is, made harmless.
double Sane(double samples_per_second) {
  return std::isfinite(samples_per_second) && samples_per_second > 0 ? std::min(samples_per_second, 1e12) : 0;
}

}  // namespace

DataRanges::DataRanges(const Config& config) : config_(config) {
  SLACKLINE_CHECK(config.samples_per_epoch > 0 && config.epochs > 0 && config.batch_size > 0);
  uint64_t end = 0;
  for (const uint32_t samples : config.block_samples) block_ends_.push_back(end += samples);
  SLACKLINE_CHECK(block_ends_.empty() || end == config.samples_per_epoch);
}

size_t DataRanges::BlockAt(uint64_t position) const {
  return static_cast<size_t>(std::upper_bound(block_ends_.begin(), block_ends_.end(), position) - block_ends_.begin());
}

void DataRanges::AddFree(const Span& span) {
  uint64_t begin = span.begin;
  for (auto end = block_ends_.begin() + static_cast<int64_t>(BlockAt(begin));
       end < block_ends_.end() && *end < span.end; ++end) {
    free_.insert({span.epoch, begin, *end});
    begin = *end;
  }
  free_.insert({span.epoch, begin, span.end});
}

std::set<DataRanges::Span>::const_iterator DataRanges::Choose(const Pace& pace) const {
  if (block_ends_.empty()) return free_.begin();
  const bool known = pace.distances.size() == block_ends_.size();
  // Drawn anew for each range, so that a worker mixes the files that it has.
  const uint64_t draw = SplitMix64(SplitMix64(config_.seed).Next() + last_id_.value()).Next();
  const auto rank = [&](const Span& span) {
    const size_t block = BlockAt(span.begin);
    const uint8_t distance = known ? pace.distances[block] : uint8_t{0};
    // A worker that gets a file from afar should have much to train on it, and nobody else should do the same.
    const uint64_t missing = distance > kNearMax ? config_.block_samples[block] - (span.end - span.begin) : uint64_t{0};
    return std::tuple(distance, missing, SplitMix64(draw + span.begin).Next());
  };
  auto best = free_.begin();
  auto best_rank = rank(*best);
  for (auto span = std::next(best); span != free_.end() && span->epoch == best->epoch; ++span) {
    if (const auto other = rank(*span); other < best_rank) {
      best = span;
      best_rank = other;
    }
  }
  return best;
}

std::optional<DataRange> DataRanges::Lease(const Holder& holder, const Pace& told) {
  if (auto held = leased_.find(holder); held != leased_.end()) return held->second.range;
  if (cut_short_) return std::nullopt;
  if (free_.empty()) {
    if (next_epoch_ == config_.epochs) return std::nullopt;
    AddFree({next_epoch_++, 0, config_.samples_per_epoch});
  }
  Pace pace = told;
  pace.samples_per_second = Sane(told.samples_per_second);
  if (pace.batch_size == 0) pace.batch_size = config_.batch_size;
  const auto chosen = Choose(pace);
  const Span span = *chosen;
  const uint64_t end = std::min(span.end, span.begin + SizeFor(holder, pace, span.epoch));
  free_.erase(chosen);
  last_id_ = last_id_.Next();
  const DataRange range = {last_id_, span.epoch, span.begin, end};
  if (end < span.end) free_.insert({span.epoch, end, span.end});
  Lend(holder, {range, pace.samples_per_second});
  samples_leased_ += range.size();
  return range;
}

uint64_t DataRanges::SizeFor(const Holder& holder, const Pace& pace, uint32_t epoch) const {
  const double batch = pace.batch_size;
  const bool is_first = !finished_.contains(holder);
  const double by_time = pace.samples_per_second > 0 && !is_first
                             ? pace.samples_per_second * absl::ToDoubleSeconds(config_.range_duration)
                             : batch * config_.first_batches;
  const uint64_t left = std::min(FreeOf(epoch), pace.samples_left);
  const double size = std::min(by_time, static_cast<double>(left) * ShareOf(pace) / 2);
  const auto batches = static_cast<uint64_t>(size / batch);
  return std::max<uint64_t>(batches, 1) * pace.batch_size;
}

double DataRanges::ShareOf(const Pace& pace) const {
  const auto workers = static_cast<double>(std::max(pace.workers, leased_.size() + 1));
  const auto known = static_cast<double>(speeds_known_ + 1);
  if (pace.samples_per_second == 0) return 1 / workers;
  // A worker that has not told a speed counts as average.
  const double average = (speeds_ + pace.samples_per_second) / known;
  return std::min(1.0, pace.samples_per_second / average) / workers;
}

uint64_t DataRanges::FreeOf(uint32_t epoch) const {
  uint64_t samples = 0;
  for (auto span = free_.begin(); span != free_.end() && span->epoch == epoch; ++span)
    samples += span->end - span->begin;
  return samples;
}

void DataRanges::Lend(const Holder& holder, const Lent& lent) {
  leased_[holder] = lent;
  if (lent.samples_per_second == 0) return;
  ++speeds_known_;
  speeds_ += lent.samples_per_second;
}

DataRange DataRanges::TakeBack(const Holder& holder) {
  const auto held = leased_.find(holder);
  const Lent lent = held->second;
  leased_.erase(held);
  if (lent.samples_per_second > 0) {
    // Rounding errors end where nobody is left.
    speeds_ = --speeds_known_ == 0 ? 0 : std::max(0.0, speeds_ - lent.samples_per_second);
  }
  return lent.range;
}

absl::StatusOr<uint32_t> DataRanges::Done(const Holder& holder, RangeId id) {
  if (auto last = finished_.find(holder); last != finished_.end() && last->second == id) return 0;
  auto held = leased_.find(holder);
  if (held == leased_.end() || held->second.range.id != id) {
    if (id < forgotten_to_) return 0;
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", holder.worker.value(), " says it finished range ", id.value(), ", but it holds ",
        held == leased_.end() ? std::string("none") : absl::StrCat("range ", held->second.range.id.value())));
  }
  const DataRange range = TakeBack(holder);
  finished_[holder] = id;
  return Count(range.epoch, range.size());
}

absl::StatusOr<uint32_t> DataRanges::DoneTo(const Holder& holder, RangeId id, uint64_t to) {
  const auto held = leased_.find(holder);
  if (held == leased_.end() || held->second.range.id != id) return 0;
  DataRange& range = held->second.range;
  if (to < range.begin || to > range.end) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", holder.worker.value(), " says it has trained range ",
                                                   id.value(), " up to ", to, "; allowed is ", range.begin, " to ",
                                                   range.end));
  }
  if (to == range.end) return Done(holder, id);
  const uint64_t samples = to - range.begin;
  range.begin = to;
  return Count(range.epoch, samples);
}

uint32_t DataRanges::Count(uint32_t epoch, uint64_t samples) {
  samples_leased_ -= samples;
  samples_done_ += samples;
  done_[epoch] += samples;
  uint32_t completed = 0;
  while (!done_.empty() && done_.begin()->first == epochs_done_ && done_.begin()->second == config_.samples_per_epoch) {
    done_.erase(done_.begin());
    ++epochs_done_;
    ++completed;
  }
  return completed;
}

uint64_t DataRanges::Release(const Holder& holder) {
  finished_.erase(holder);
  if (!leased_.contains(holder)) return 0;
  const DataRange range = TakeBack(holder);
  AddFree({range.epoch, range.begin, range.end});
  samples_leased_ -= range.size();
  samples_given_twice_ += range.size();
  return range.size();
}

std::vector<Holder> DataRanges::Holders() const {
  std::vector<Holder> holders;
  for (const auto& [holder, lent] : leased_) holders.push_back(holder);
  return holders;
}

void DataRanges::Save(state::Ranges& state) const {
  state.set_last_id(last_id_.value());
  state.set_next_epoch(next_epoch_);
  const auto fill = [](uint32_t epoch, uint64_t begin, uint64_t end, state::Span& span) {
    span.set_epoch(epoch);
    span.set_begin(begin);
    span.set_end(end);
  };
  for (const Span& span : free_) fill(span.epoch, span.begin, span.end, *state.add_free());
  for (const auto& [holder, lent] : leased_) {
    state::Lease& lease = *state.add_leased();
    *lease.mutable_holder() = ToState(holder);
    lease.set_range(lent.range.id.value());
    fill(lent.range.epoch, lent.range.begin, lent.range.end, *lease.mutable_span());
    lease.set_samples_per_second(lent.samples_per_second);
  }
  for (const auto& [holder, range] : finished_) {
    state::FinishedRange& finished = *state.add_finished();
    *finished.mutable_holder() = ToState(holder);
    finished.set_range(range.value());
  }
  for (const auto& [epoch, samples] : done_) (*state.mutable_done())[epoch] = samples;
  state.set_epochs_done(epochs_done_);
  state.set_samples_done(samples_done_);
  state.set_samples_leased(samples_leased_);
  state.set_samples_given_twice(samples_given_twice_);
  state.set_cut_short(cut_short_);
}

void DataRanges::Restore(const state::Ranges& state) {
  SLACKLINE_CHECK(last_id_ == RangeId());
  last_id_ = forgotten_to_ = RangeId(state.last_id() + kForgottenMax);
  next_epoch_ = state.next_epoch();
  for (const state::Span& span : state.free()) AddFree({span.epoch(), span.begin(), span.end()});
  for (const state::Lease& lease : state.leased()) {
    const state::Span& span = lease.span();
    Lend(FromState(lease.holder()),
         {{RangeId(lease.range()), span.epoch(), span.begin(), span.end()}, Sane(lease.samples_per_second())});
  }
  for (const state::FinishedRange& finished : state.finished()) {
    finished_[FromState(finished.holder())] = RangeId(finished.range());
  }
  for (const auto& [epoch, samples] : state.done()) done_[epoch] = samples;
  epochs_done_ = state.epochs_done();
  samples_done_ = state.samples_done();
  samples_leased_ = state.samples_leased();
  samples_given_twice_ = state.samples_given_twice();
  cut_short_ = state.cut_short();
}

}  // namespace slackline::scheduler
