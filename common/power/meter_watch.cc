#include "common/power/meter_watch.h"

#include "absl/strings/str_cat.h"

namespace slackline::power {

std::vector<std::string> MeterWatch::Look(const EnergyTotals& totals) {
  std::vector<std::string> said;
  for (const DeviceTotals& device : totals.devices) {
    const auto [found, fresh] = seen_.try_emplace(device.device);
    Seen& seen = found->second;
    if (fresh || device.joules.total() != seen.joules) {
      seen.joules = device.joules.total();
      seen.moved = totals.until;
    }
    const absl::Duration silent = totals.until - device.read_at;
    if (silent > kSilent && !seen.said_silent) {
      seen.said_silent = true;
      said.push_back(absl::StrCat("the meter of ", device.device, " has said nothing for ",
                                  absl::FormatDuration(absl::Trunc(silent, absl::Seconds(1))),
                                  "; its energy since then is not counted"));
    }
    const bool counter = device.reading.joules.has_value();
    if (counter && silent <= kSilent && totals.until - seen.moved > kStill && !seen.said_still) {
      seen.said_still = true;
      said.push_back(absl::StrCat("the meter of ", device.device, " stands still: it has counted ", seen.joules,
                                  " J, and nothing for ",
                                  absl::FormatDuration(absl::Trunc(totals.until - seen.moved, absl::Seconds(1)))));
    }
  }
  return said;
}

}  // namespace slackline::power
