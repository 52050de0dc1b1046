// Computes energy by device and phase from readings. Has no thread and no clock.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/power/power_meter.h"

namespace slackline::power {

// Phase of a worker: training, an evaluation during training, the last evaluation, or none of these.
enum class Phase { kTraining, kValidation, kTest, kOther };

struct PhaseJoules {
  double training = 0;
  double validation = 0;
  double test = 0;
  double other = 0;

  double total() const { return training + validation + test + other; }
  void Add(Phase phase, double joules);
};

// Power of a device at one time.
struct PowerSample {
  std::string device;
  absl::Time at;
  double watts = 0;
};

struct DeviceTotals {
  std::string device;
  PhaseJoules joules;  // since the first reading
  double watts = 0;    // latest value
  // The last reading and its time.
  DeviceReading reading;
  absl::Time read_at;
};

// Adds up energy. Between two readings it is the growth of the device's counter or, without a counter, the trapezoid of
// its power. The energy is split among the phases by their share of the time.
//
// Thread-safety: none.
class EnergyTally {
 public:
  explicit EnergyTally(absl::Time begin);

  // Begins a phase at `now`. Times must never fall.
  void Enter(Phase phase, absl::Time now);
  // Returns the power at `now` of each device that shows it: a counter does from its second reading on.
  std::vector<PowerSample> Add(absl::Span<const DeviceReading> readings, absl::Time now);

  // Returns the devices in the order of their names.
  std::vector<DeviceTotals> devices() const;
  absl::Time since() const { return since_; }
  // Returns the time of the last readings.
  absl::Time until() const { return until_; }

 private:
  struct Change {
    absl::Time since;
    Phase phase;
  };
  // A counter, and the time of its reading.
  struct Count {
    absl::Time at;
    double joules = 0;
  };
  struct Metered {
    absl::Time last;
    DeviceTotals totals;
    // Reading from which the next power of a counter is taken; absent before the first.
    std::optional<Count> counted;
  };
  // Largest number of phase changes kept, so that a device that cannot be read does not keep those of a whole run.
  static constexpr size_t kChangesMax = 1000;

  // Shortest time over which the growth of a counter gives its power: counters move in steps of about 1 ms.
  static constexpr absl::Duration kCountedOver = absl::Milliseconds(10);

  // Returns the power that the reading shows, if it does.
  static std::optional<double> Watts(const DeviceReading& reading, absl::Time now, Metered& device);
  void Share(double joules, absl::Time begin, absl::Time end, PhaseJoules& out) const;
  void Forget();

  const absl::Time since_;
  absl::Time until_;
  std::deque<Change> changes_;  // at least one element
  std::map<std::string, Metered> devices_;
};

}  // namespace slackline::power
