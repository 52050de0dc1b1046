// Detects meters that fall silent or stand still, so that an energy figure that is too small is not mistaken for a
// saving.
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
  // Time without a reading after which a device counts as silent.
  static constexpr absl::Duration kSilent = absl::Seconds(10);
  // Time without growth after which a counter counts as standing still. A running computer uses more than a counter's
  // smallest step in a minute.
  static constexpr absl::Duration kStill = absl::Seconds(60);

  // Returns the warnings after this sample. Each device gets each warning only once.
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
