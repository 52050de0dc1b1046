// Notices meters that fall silent or stand still, so that a figure that is too small does not pass for a saving.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/power/energy_sampler.h"

namespace slackline::power {

// Thread-safety: none.
class MeterWatch {
 public:
  // Without a reading, until a device is said to be silent.
  static constexpr absl::Duration kSilent = absl::Seconds(10);
  // A computer that runs uses more than a counter's smallest step in a minute.
  static constexpr absl::Duration kStill = absl::Seconds(60);

  // What is to be said after this sample; of each device and mistake once.
  std::vector<std::string> Look(const EnergyTotals& totals);

 private:
  struct Seen {
    double joules = 0;
    absl::Time moved;
    bool said_silent = false;
    bool said_still = false;
  };
  std::map<std::string, Seen> seen_;
};

}  // namespace slackline::power
