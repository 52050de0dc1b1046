// Reads meters periodically in its own thread, so that a slow meter blocks no other work.
#pragma once

#include <functional>
#include <memory>
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
};

// Thread-safety: safe.
// Threads:       one, born in the constructor, joined in the destructor.
class EnergySampler {
 public:
  // Callback after each sample, on the sampler's thread. May be null.
  using OnSample = std::function<void(const EnergyTotals& totals)>;

  // Takes a sample at once, then every `every`, and whenever the phase changes.
  EnergySampler(std::vector<std::unique_ptr<PowerMeter>> meters, absl::Duration every, OnSample on_sample);
  ~EnergySampler();

  // Changes the phase. Never waits for a meter.
  void Enter(Phase phase) ABSL_LOCKS_EXCLUDED(mutex_);
  EnergyTotals Take() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void Sample() ABSL_LOCKS_EXCLUDED(mutex_);
  bool Due() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stop_ || changed_; }
  EnergyTotals TotalsLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const SteadyTime time_;
  const absl::Duration every_;
  const OnSample on_sample_;
  // Used only by the sampler's thread.
  const std::vector<std::unique_ptr<PowerMeter>> meters_;

  mutable absl::Mutex mutex_;
  EnergyTally tally_ ABSL_GUARDED_BY(mutex_);
  bool changed_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace slackline::power
