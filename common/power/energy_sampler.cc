#include "common/power/energy_sampler.h"

#include <utility>

namespace slackline::power {

EnergySampler::EnergySampler(std::vector<std::unique_ptr<PowerMeter>> meters, absl::Duration every, OnSample on_sample)
    : every_(every), on_sample_(std::move(on_sample)), meters_(std::move(meters)), tally_(time_.Now()), thread_([this] {
        Run();
      }) {}

EnergySampler::~EnergySampler() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

void EnergySampler::Enter(Phase phase) {
  absl::MutexLock lock(&mutex_);
  tally_.Enter(phase, time_.Now());
  changed_ = true;
}

EnergyTotals EnergySampler::Take() const {
  absl::MutexLock lock(&mutex_);
  return TotalsLocked();
}

EnergyTotals EnergySampler::TotalsLocked() const {
  return {.since = tally_.since(), .until = tally_.until(), .devices = tally_.devices()};
}

void EnergySampler::Run() {
  while (true) {
    Sample();
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(this, &EnergySampler::Due), every_);
    if (stop_) return;
    changed_ = false;
  }
}

void EnergySampler::Sample() {
  std::vector<DeviceReading> readings;
  for (const std::unique_ptr<PowerMeter>& meter : meters_) {
    for (DeviceReading& reading : meter->Read()) readings.push_back(std::move(reading));
  }
  EnergyTotals totals;
  {
    absl::MutexLock lock(&mutex_);
    tally_.Add(readings, time_.Now());
    totals = TotalsLocked();
  }
  if (on_sample_) on_sample_(totals);
}

}  // namespace slackline::power
