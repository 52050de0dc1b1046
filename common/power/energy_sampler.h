// Reads meters periodically in its own thread, so that a slow meter blocks no other work.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/power/energy_tally.h"
#include "common/power/power_meter.h"
#include "common/time/clock.h"

namespace slackline::power {

// Energy of all devices up to the last sample.
struct EnergyTotals {
  // Begin and end of the measurement, on the machine's steady clock.
  absl::Time since;
  absl::Time until;
  std::vector<DeviceTotals> devices;
  // Samples that are not confirmed, by time.
  std::vector<PowerSample> samples = {};
  // Median power by device, as MeasureIdle() returned it.
  std::map<std::string, double> idle_watts = {};
};

// Power of a machine that has nothing to do.
struct IdlePower {
  std::map<std::string, double> watts;  // median, by device
  std::vector<PowerSample> samples;
};

// Meters for `duration` and returns what it read; a device that shows no power is missing.
IdlePower MeasureIdle(std::vector<std::unique_ptr<PowerMeter>> meters, absl::Duration every, absl::Duration duration);

// Thread-safety: safe.
// Threads:       one, born in the constructor, joined in the destructor.
class EnergySampler {
 public:
  // Largest number of samples that wait for Confirm(); the oldest are dropped. 11 minutes of 3 devices at 500 ms.
  static constexpr size_t kSamplesMax = 4096;

  // Callback after each sample, on the sampler's thread. Its totals have no samples. May be null.
  using OnSample = std::function<void(const EnergyTotals& totals)>;

  // Takes a sample at once, then every `every`, and whenever the phase changes. `idle`: what MeasureIdle() returned
  // before, for those who take the totals.
  EnergySampler(std::vector<std::unique_ptr<PowerMeter>> meters, absl::Duration every, OnSample on_sample,
                IdlePower idle = {});
  ~EnergySampler();

  // Changes the phase. Never waits for a meter.
  void Enter(Phase phase) ABSL_LOCKS_EXCLUDED(mutex_);
  EnergyTotals Take() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Forgets the samples up to `until`: whoever took them has passed them on.
  void Confirm(absl::Time until) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void Sample() ABSL_LOCKS_EXCLUDED(mutex_);
  bool Due() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stop_ || changed_; }
  EnergyTotals TotalsLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const SteadyTime time_;
  const absl::Duration every_;
  const OnSample on_sample_;
  const std::map<std::string, double> idle_watts_;
  // Used only by the sampler's thread.
  const std::vector<std::unique_ptr<PowerMeter>> meters_;

  mutable absl::Mutex mutex_;
  EnergyTally tally_ ABSL_GUARDED_BY(mutex_);
  std::deque<PowerSample> samples_ ABSL_GUARDED_BY(mutex_);
  bool changed_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace slackline::power
