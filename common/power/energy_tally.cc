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

std::optional<double> EnergyTally::Watts(const DeviceReading& reading, absl::Time now, Metered& device) {
  if (reading.watts || !reading.joules) return reading.watts;
  const std::optional<Count> before = device.counted;
  if (before && now - before->at < kCountedOver) return std::nullopt;
  device.counted = {now, *reading.joules};
  if (!before) return std::nullopt;
  return std::max(0.0, *reading.joules - before->joules) / absl::ToDoubleSeconds(now - before->at);
}

std::vector<PowerSample> EnergyTally::Add(absl::Span<const DeviceReading> readings, absl::Time now) {
  until_ = std::max(until_, now);
  std::vector<PowerSample> samples;
  for (const DeviceReading& reading : readings) {
    const auto [found, fresh] = devices_.try_emplace(reading.device);
    Metered& device = found->second;
    DeviceTotals& totals = device.totals;
    const double seconds = fresh ? 0 : absl::ToDoubleSeconds(now - device.last);
    if (seconds > 0) {
      double joules = 0;
      if (reading.joules && totals.reading.joules) {
        joules = std::max(0.0, *reading.joules - *totals.reading.joules);
      } else if (reading.watts && totals.reading.watts) {
        joules = seconds * (*reading.watts + *totals.reading.watts) / 2;
      }
      Share(joules, device.last, now, totals.joules);
    }
    if (fresh) totals.device = reading.device;
    if (fresh || seconds > 0) {
      totals.reading = reading;
      totals.read_at = now;
      device.last = now;
      if (const std::optional<double> watts = Watts(reading, now, device)) {
        totals.watts = *watts;
        samples.push_back({reading.device, now, *watts});
      }
    }
  }
  Forget();
  return samples;
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
