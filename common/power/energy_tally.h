// Energy by device and phase, from readings. No thread, no clock.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/power/power_meter.h"

namespace slackline::power {

// What a worker does: trains, evaluates while training goes on, makes the last evaluation, or none of these.
enum class Phase { kTraining, kValidation, kTest, kOther };

struct PhaseJoules {
  double training = 0;
  double validation = 0;
  double test = 0;
  double other = 0;

  double total() const { return training + validation + test + other; }
  void Add(Phase phase, double joules);
};

struct DeviceTotals {
  std::string device;
  PhaseJoules joules;  // since it was first read
  double watts = 0;    // lately
  // The last reading, and when it was.
  DeviceReading reading;
  absl::Time read_at;
};

// Energy between two readings is what the device's counter has grown by; where it has none, the trapezoid of its power.
// It goes to phases by the time that they took of it.
//
// Thread-safety: none.
class EnergyTally {
 public:
  explicit EnergyTally(absl::Time begin);

  // The phase from `now` on. Times never fall.
  void Enter(Phase phase, absl::Time now);
  void Add(absl::Span<const DeviceReading> readings, absl::Time now);

  // In the order of their names.
  std::vector<DeviceTotals> devices() const;
  absl::Time since() const { return since_; }
  // Of the last readings.
  absl::Time until() const { return until_; }

 private:
  struct Change {
    absl::Time since;
    Phase phase;
  };
  struct Metered {
    absl::Time last;
    DeviceTotals totals;
  };
  // A device that cannot be read must not keep the phases of a whole run.
  static constexpr size_t kChangesMax = 1000;

  void Share(double joules, absl::Time begin, absl::Time end, PhaseJoules& out) const;
  void Forget();

  const absl::Time since_;
  absl::Time until_;
  std::deque<Change> changes_;  // never empty
  std::map<std::string, Metered> devices_;
};

}  // namespace slackline::power
