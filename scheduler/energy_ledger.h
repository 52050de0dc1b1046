// Energy of a job: each device of each node once, however many workers report it (docs/adr/0033). Pure.
//
// Workers of one machine read the same meters. Each says what a device has taken since it looked first, and until when,
// on the machine's clock. A device is counted up to a time; of a report that begins before it, only what came after
// counts, by its share of the report's time. So it does not matter who reports, who dies, or in which order words
// arrive.
//
// Thread-safety: none.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "common/ids.h"
#include "energy.pb.h"
#include "google/protobuf/repeated_ptr_field.h"

namespace slackline::scheduler {

class EnergyLedger {
 public:
  // More are not counted.
  static constexpr size_t kDevicesMax = 100'000;

  // Words that are older than earlier ones, and figures that are no numbers or shrink, are not counted.
  void Heard(WorkerId worker, const wire::NodeEnergy& energy);

  // The worker has gone for good; what its devices have taken stays counted.
  void Forget(WorkerId worker) { heard_.erase(worker); }

  // Something was metered.
  bool metered() const { return !devices_.empty(); }
  double total_joules() const;
  // `time_s`: of the job, for energy times delay.
  wire::EnergyView View(double time_s) const;

  using Counts = google::protobuf::RepeatedPtrField<wire::DeviceCount>;
  Counts Save() const;
  void Restore(const Counts& counts);
  // The last words of a worker that are counted already.
  void Know(WorkerId worker, const wire::NodeEnergy& energy) { heard_[worker] = energy; }

 private:
  using Key = std::pair<std::string, std::string>;  // machine, device

  std::map<Key, wire::DeviceCount> devices_;
  std::map<WorkerId, wire::NodeEnergy> heard_;
};

double Total(const wire::PhaseJoules& joules);

}  // namespace slackline::scheduler
