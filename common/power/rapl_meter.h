// Energy of processors and their memory, as Linux's powercap shows it (RAPL; Intel, and AMD from family 17h on).
// Documentation/power/powercap in the kernel's tree.
#pragma once

#include <filesystem>
#include <memory>

#include "absl/status/statusor.h"
#include "common/power/power_meter.h"

namespace slackline::power {

// Packages, and their dram where it has a meter of its own. What is counted in them is left out: core and uncore are
// parts of a package, psys has the packages in it.
//   kNotFound          the kernel shows none, or none that has ever counted
//   kPermissionDenied  none may be read; says what to do
absl::StatusOr<std::unique_ptr<PowerMeter>> OpenRapl(const std::filesystem::path& sysfs);

}  // namespace slackline::power
