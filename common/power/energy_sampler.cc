#include "common/power/energy_sampler.h"

#include <algorithm>
#include <utility>

#include "absl/synchronization/notification.h"

namespace slackline::power {
namespace {

// A meter that hangs holds nobody up for longer.
constexpr absl::Duration kIdlePatience = absl::Seconds(30);

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

IdlePower MeasureIdle(std::vector<std::unique_ptr<PowerMeter>> meters, absl::Duration every, absl::Duration duration) {
  absl::Notification done;
  EnergySampler sampler(std::move(meters), every, [&done, duration](const EnergyTotals& totals) {
    if (totals.until - totals.since >= duration && !done.HasBeenNotified()) done.Notify();
  });
  done.WaitForNotificationWithTimeout(duration + every + kIdlePatience);
  IdlePower idle;
  idle.samples = sampler.Take().samples;
  std::map<std::string, std::vector<double>> watts;
  for (const PowerSample& sample : idle.samples) watts[sample.device].push_back(sample.watts);
  for (auto& [device, values] : watts) idle.watts[device] = Median(std::move(values));
  return idle;
}

EnergySampler::EnergySampler(std::vector<std::unique_ptr<PowerMeter>> meters, absl::Duration every, OnSample on_sample,
                             IdlePower idle)
    : every_(every),
      on_sample_(std::move(on_sample)),
      idle_watts_(std::move(idle.watts)),
      meters_(std::move(meters)),
      tally_(time_.Now()),
      samples_(idle.samples.begin(), idle.samples.end()),
      thread_([this] { Run(); }) {}

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
  EnergyTotals totals = TotalsLocked();
  totals.samples.assign(samples_.begin(), samples_.end());
  totals.idle_watts = idle_watts_;
  return totals;
}

void EnergySampler::Confirm(absl::Time until) {
  absl::MutexLock lock(&mutex_);
  while (!samples_.empty() && samples_.front().at <= until) samples_.pop_front();
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
    for (PowerSample& sample : tally_.Add(readings, time_.Now())) samples_.push_back(std::move(sample));
    while (samples_.size() > kSamplesMax) samples_.pop_front();
    totals = TotalsLocked();
  }
  if (on_sample_) on_sample_(totals);
}

}  // namespace slackline::power
