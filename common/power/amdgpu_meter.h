// Meters of AMD's GPUs. Reads power, use, memory and temperature from the files of Linux's driver amdgpu
// (Documentation/gpu/amdgpu/thermal in the kernel's tree). No library is needed.
#pragma once

#include <filesystem>
#include <memory>

#include "absl/status/statusor.h"
#include "common/power/power_meter.h"

namespace slackline::power {

//   kNotFound  the machine has none of the chosen GPUs
absl::StatusOr<std::unique_ptr<PowerMeter>> OpenAmdgpu(const std::filesystem::path& sysfs, const GpuChoice& choice);

}  // namespace slackline::power
