#include "common/power/energy_tally.h"

#include <algorithm>

namespace slackline::power {

void PhaseJoules::Add(Phase phase, double joules) {
  switch (phase) {
    case Phase::kTraining:
      training += joules;
      return;
    case Phase::kValidation:
      validation += joules;
      return;
    case Phase::kTest:
      test += joules;
      return;
    case Phase::kOther:
      other += joules;
      return;
  }
}

EnergyTally::EnergyTally(absl::Time begin) : since_(begin), until_(begin) {
  changes_.push_back({begin, Phase::kOther});
}

void EnergyTally::Enter(Phase phase, absl::Time now) {
  if (changes_.back().phase == phase) return;
  changes_.push_back({std::max(now, changes_.back().since), phase});
  if (changes_.size() > kChangesMax) changes_.pop_front();
}

void EnergyTally::Add(absl::Span<const DeviceReading> readings, absl::Time now) {
  until_ = std::max(until_, now);
  for (const DeviceReading& reading : readings) {
    const auto [found, fresh] = devices_.try_emplace(reading.device);
    Metered& device = found->second;
    DeviceTotals& totals = device.totals;
    const double seconds = fresh ? 0 : absl::ToDoubleSeconds(now - device.last);
    if (seconds > 0) {
      double joules = 0;
      if (reading.joules && totals.reading.joules) {
        joules = std::max(0.0, *reading.joules - *totals.reading.joules);
        totals.watts = joules / seconds;
      } else if (reading.watts && totals.reading.watts) {
        joules = seconds * (*reading.watts + *totals.reading.watts) / 2;
      }
      Share(joules, device.last, now, totals.joules);
    }
    if (reading.watts) totals.watts = *reading.watts;
    if (fresh) totals.device = reading.device;
    if (fresh || seconds > 0) {
      totals.reading = reading;
      totals.read_at = now;
      device.last = now;
    }
  }
  Forget();
}

void EnergyTally::Share(double joules, absl::Time begin, absl::Time end, PhaseJoules& out) const {
  for (size_t i = 0; i < changes_.size(); ++i) {
    // What is older than all that is known counts as the oldest.
    const absl::Time from = i == 0 ? begin : std::max(begin, changes_[i].since);
    const absl::Time to = i + 1 == changes_.size() ? end : std::min(end, changes_[i + 1].since);
    if (to > from) out.Add(changes_[i].phase, joules * absl::FDivDuration(to - from, end - begin));
  }
}

void EnergyTally::Forget() {
  absl::Time oldest = until_;
  for (const auto& [name, device] : devices_) oldest = std::min(oldest, device.last);
  while (changes_.size() > 1 && changes_[1].since <= oldest) changes_.pop_front();
}

std::vector<DeviceTotals> EnergyTally::devices() const {
  std::vector<DeviceTotals> devices;
  for (const auto& [name, device] : devices_) devices.push_back(device.totals);
  return devices;
}

}  // namespace slackline::power
