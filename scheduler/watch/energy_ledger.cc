#include "scheduler/watch/energy_ledger.h"

#include <algorithm>
#include <cmath>

namespace slackline::scheduler {
namespace {

// The sums are of all.
constexpr int kDevicesNamed = 1000;

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

void EnergyLedger::Heard(WorkerId worker, const wire::NodeEnergy& energy) {
  wire::NodeEnergy& before = heard_[worker];
  const bool same = before.machine() == energy.machine() && before.since_us() == energy.since_us();
  if (!same) before.Clear();
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
    if (energy.until_us() <= count.until_us()) continue;
    const auto time = static_cast<double>(energy.until_us()) - static_cast<double>(begin);
    const auto left = static_cast<double>(energy.until_us()) - static_cast<double>(std::max(begin, count.until_us()));
    AddShare(left / time, device.joules(), JoulesOf(before, device.device()), *count.mutable_joules());
    count.set_watts(std::isfinite(device.watts()) ? device.watts() : 0);
    count.set_until_us(energy.until_us());
  }
  before = energy;
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
  for (const auto& [key, count] : devices_) {
    AddShare(1, count.joules(), wire::PhaseJoules::default_instance(), sum);
    watts += count.watts();
    if (view.devices_size() < kDevicesNamed) *view.add_devices() = count;
  }
  view.set_total_joules(Total(sum));
  view.set_edp_joule_seconds(time_s * Total(sum));
  view.set_watts(watts);
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
