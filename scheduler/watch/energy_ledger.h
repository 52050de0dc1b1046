// Energy of a job. Counts each device of each node once, however many workers report it (docs/adr/0033). Pure.
//
// Workers of one machine read the same meters. Each worker reports the energy that a device has taken since the worker
// first looked, and the time up to which this holds, by the machine's clock. A device is counted up to a time. If a
// report begins before that time, only the part after it counts, in proportion to the report's time. The result
// therefore does not depend on who reports, who dies, or in which order reports arrive.
//
// Thread-safety: none.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "common/base/ids.h"
#include "energy.pb.h"
#include "google/protobuf/repeated_ptr_field.h"

namespace slackline::scheduler {

class EnergyLedger {
 public:
  // Largest number of devices; further ones are not counted.
  static constexpr size_t kDevicesMax = 100'000;

  // Counts a worker's report. Reports older than earlier ones, and figures that are not numbers or that shrink, are not
  // counted.
  void Heard(WorkerId worker, const wire::NodeEnergy& energy);

  // Forgets a worker that has gone for good; the energy that its devices have taken stays counted.
  void Forget(WorkerId worker) { heard_.erase(worker); }

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

  std::map<Key, wire::DeviceCount> devices_;
  std::map<WorkerId, wire::NodeEnergy> heard_;
};

double Total(const wire::PhaseJoules& joules);

}  // namespace slackline::scheduler
