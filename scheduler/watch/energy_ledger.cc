#include "scheduler/watch/energy_ledger.h"

#include <algorithm>
#include <cmath>

namespace slackline::scheduler {
namespace {

// The sums are of all.
constexpr int kDevicesNamed = 1000;

constexpr double kMicro = 1e-6;

double GrownJoules(double now, double before) {
  const double grown = now - before;
  return std::isfinite(grown) ? std::max(0.0, grown) : 0;
}

void AddShare(double share, const wire::PhaseJoules& now, const wire::PhaseJoules& before, wire::PhaseJoules& sum) {
  sum.set_training(sum.training() + share * GrownJoules(now.training(), before.training()));
  sum.set_validation(sum.validation() + share * GrownJoules(now.validation(), before.validation()));
  sum.set_test(sum.test() + share * GrownJoules(now.test(), before.test()));
  sum.set_other(sum.other() + share * GrownJoules(now.other(), before.other()));
}

const wire::PhaseJoules& JoulesOf(const wire::NodeEnergy& energy, const std::string& device) {
  for (const wire::DeviceEnergy& one : energy.devices()) {
    if (one.device() == device) return one.joules();
  }
  return wire::PhaseJoules::default_instance();
}

}  // namespace

double Total(const wire::PhaseJoules& joules) {
  return joules.training() + joules.validation() + joules.test() + joules.other();
}

std::optional<double> MeanWatts(const wire::DeviceCount& count) {
  if (count.seconds() <= 0) return std::nullopt;
  return Total(count.joules()) / count.seconds();
}

void DropSamples(wire::NodeEnergy& energy) {
  for (wire::DeviceEnergy& device : *energy.mutable_devices()) device.clear_samples();
}

absl::Duration EnergyLedger::Ahead(const wire::NodeEnergy& energy, absl::Time now) {
  const absl::Duration ahead = now - absl::FromUnixMicros(energy.sent_us());
  const auto found = ahead_of_.find(energy.machine());
  if (found != ahead_of_.end()) return found->second = std::min(found->second, ahead);
  if (ahead_of_.size() < kDevicesMax) ahead_of_[energy.machine()] = ahead;
  return ahead;
}

void EnergyLedger::KeepSamples(const wire::DeviceEnergy& device, absl::Duration ahead, int64_t metered_us,
                               wire::DeviceCount& count) {
  for (const wire::PowerSample& sample : device.samples()) {
    if (sample.at_us() <= count.sampled_us() || !std::isfinite(sample.watts())) continue;
    count.set_sampled_us(sample.at_us());
    samples_.push_back({.node = count.node(),
                        .device = count.device(),
                        .at = absl::FromUnixMicros(sample.at_us()) + ahead,
                        .watts = sample.watts()});
    if (samples_.size() > kSamplesMax) samples_.pop_front();
    // Earlier ones are of the idle machine.
    if (sample.at_us() <= metered_us) continue;
    count.set_watts_min(count.has_watts_min() ? std::min(count.watts_min(), sample.watts()) : sample.watts());
    count.set_watts_max(count.has_watts_max() ? std::max(count.watts_max(), sample.watts()) : sample.watts());
  }
}

std::vector<PowerRow> EnergyLedger::TakeSamples(absl::Time began) {
  std::vector<PowerRow> rows;
  rows.reserve(samples_.size());
  for (Sample& sample : samples_) {
    rows.push_back(
        {absl::ToDoubleSeconds(sample.at - began), std::move(sample.node), std::move(sample.device), sample.watts});
  }
  samples_.clear();
  return rows;
}

void EnergyLedger::Heard(WorkerId worker, const wire::NodeEnergy& energy, absl::Time now) {
  wire::NodeEnergy& before = heard_[worker];
  const bool same = before.machine() == energy.machine() && before.since_us() == energy.since_us();
  if (!same) before.Clear();
  const absl::Duration ahead = Ahead(energy, now);
  const int64_t begin = same ? before.until_us() : energy.since_us();
  if (energy.until_us() <= begin) return;
  for (const wire::DeviceEnergy& device : energy.devices()) {
    const Key key = {energy.machine(), device.device()};
    if (!devices_.contains(key) && devices_.size() >= kDevicesMax) continue;
    const auto [found, fresh] = devices_.try_emplace(key);
    wire::DeviceCount& count = found->second;
    if (fresh) {
      count.set_node(energy.node());
      count.set_machine(energy.machine());
      count.set_device(device.device());
      count.set_until_us(begin);
    }
    KeepSamples(device, ahead, energy.since_us(), count);
    // A worker that was started again meters a node that is not idle: the lowest counts.
    if (device.has_idle_watts() && std::isfinite(device.idle_watts())) {
      const double lowest = count.has_idle_watts() ? count.idle_watts() : device.idle_watts();
      count.set_idle_watts(std::min(lowest, device.idle_watts()));
    }
    if (energy.until_us() <= count.until_us()) continue;
    const auto time = static_cast<double>(energy.until_us()) - static_cast<double>(begin);
    const auto left = static_cast<double>(energy.until_us()) - static_cast<double>(std::max(begin, count.until_us()));
    AddShare(left / time, device.joules(), JoulesOf(before, device.device()), *count.mutable_joules());
    count.set_watts(std::isfinite(device.watts()) ? device.watts() : 0);
    count.set_until_us(energy.until_us());
    count.set_seconds(count.seconds() + kMicro * left);
  }
  before = energy;
  DropSamples(before);
}

double EnergyLedger::total_joules() const {
  double total = 0;
  for (const auto& [key, count] : devices_) total += Total(count.joules());
  return total;
}

wire::EnergyView EnergyLedger::View(double time_s) const {
  wire::EnergyView view;
  wire::PhaseJoules& sum = *view.mutable_joules();
  double watts = 0;
  double idle = 0;
  bool idle_known = !devices_.empty();
  for (const auto& [key, count] : devices_) {
    AddShare(1, count.joules(), wire::PhaseJoules::default_instance(), sum);
    watts += count.watts();
    idle += count.idle_watts() * count.seconds();
    idle_known = idle_known && count.has_idle_watts();
    if (view.devices_size() < kDevicesNamed) *view.add_devices() = count;
  }
  view.set_total_joules(Total(sum));
  view.set_edp_joule_seconds(time_s * Total(sum));
  view.set_watts(watts);
  if (idle_known) view.set_above_idle_joules(view.total_joules() - idle);
  return view;
}

EnergyLedger::Counts EnergyLedger::Save() const {
  Counts counts;
  for (const auto& [key, count] : devices_) *counts.Add() = count;
  return counts;
}

void EnergyLedger::Restore(const Counts& counts) {
  for (const wire::DeviceCount& count : counts) {
    if (devices_.size() >= kDevicesMax) return;
    devices_[{count.machine(), count.device()}] = count;
  }
}

}  // namespace slackline::scheduler
