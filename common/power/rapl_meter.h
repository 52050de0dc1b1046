// Meters of the energy of processors and their memory, from Linux's powercap (RAPL; Intel, and AMD from family 17h on).
#pragma once

#include <filesystem>
#include <memory>

#include "absl/status/statusor.h"
#include "common/power/power_meter.h"

namespace slackline::power {

// Meters packages, and their dram if it has a meter of its own. Meters that packages already include are left out: core
// and uncore are parts of a package, and psys contains the packages.
//   kNotFound          the kernel shows no meter, or none that has ever counted
//   kPermissionDenied  no meter may be read; names the remedy
absl::StatusOr<std::unique_ptr<PowerMeter>> OpenRapl(const std::filesystem::path& sysfs);

}  // namespace slackline::power
