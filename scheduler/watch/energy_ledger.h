// Energy of a job. Counts each device of each node once, however many workers report it (docs/adr/0033). Pure.
//
// Workers of one machine read the same meters. Each worker reports the energy that a device has taken since the worker
// first looked, and the time up to which this holds, by the machine's clock. A device is counted up to a time. If a
// report begins before that time, only the part after it counts, in proportion to the report's time. The result
// therefore does not depend on who reports, who dies, or in which order reports arrive.
//
// Samples of a device's power are kept in the same way, until somebody takes them: each later one than the last.
//
// Thread-safety: none.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "energy.pb.h"
#include "google/protobuf/repeated_ptr_field.h"

namespace slackline::scheduler {

// A row of power.csv.
struct PowerRow {
  // Time since training began; negative for a sample before it.
  double time_s = 0;
  std::string node;
  std::string device;
  double watts = 0;
};

class EnergyLedger {
 public:
  // Largest number of devices; further ones are not counted.
  static constexpr size_t kDevicesMax = 100'000;

  // Largest number of samples that wait for TakeSamples(); the oldest are dropped.
  static constexpr size_t kSamplesMax = 200'000;

  // Counts a worker's report that arrives at `now`. Reports older than earlier ones, and figures that are not numbers
  // or that shrink, are not counted.
  void Heard(WorkerId worker, const wire::NodeEnergy& energy, absl::Time now);

  // Forgets a worker that has gone for good; the energy that its devices have taken stays counted.
  void Forget(WorkerId worker) { heard_.erase(worker); }

  // Returns the samples since the previous call. `began`: when training began.
  std::vector<PowerRow> TakeSamples(absl::Time began);

  // True if something was metered.
  bool metered() const { return !devices_.empty(); }
  double total_joules() const;
  // Returns the energy of the job. `time_s`: time of the job, for energy times delay.
  wire::EnergyView View(double time_s) const;

  using Counts = google::protobuf::RepeatedPtrField<wire::DeviceCount>;
  Counts Save() const;
  void Restore(const Counts& counts);
  // Notes the last report of a worker, which is counted already.
  void Know(WorkerId worker, const wire::NodeEnergy& energy) { heard_[worker] = energy; }

 private:
  using Key = std::pair<std::string, std::string>;  // machine, device

  struct Sample {
    std::string node;
    std::string device;
    absl::Time at;
    double watts = 0;
  };

  // Returns the time here less that of the machine: the smallest difference so far between arrival and sending.
  absl::Duration Ahead(const wire::NodeEnergy& energy, absl::Time now);
  // Keeps samples that are later than those of the device so far. `metered_us`: when metering began.
  void KeepSamples(const wire::DeviceEnergy& device, absl::Duration ahead, int64_t metered_us,
                   wire::DeviceCount& count);

  std::map<Key, wire::DeviceCount> devices_;
  std::map<WorkerId, wire::NodeEnergy> heard_;      // without samples
  std::map<std::string, absl::Duration> ahead_of_;  // by machine
  std::deque<Sample> samples_;
};

double Total(const wire::PhaseJoules& joules);
// Returns the mean power of a device over the time for which it is counted; nullopt if there is none.
std::optional<double> MeanWatts(const wire::DeviceCount& count);
// Removes the samples of a report that is kept.
void DropSamples(wire::NodeEnergy& energy);

}  // namespace slackline::scheduler
