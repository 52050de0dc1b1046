// AMD's GPUs, by the files of Linux's driver amdgpu (Documentation/gpu/amdgpu/thermal in the kernel's tree): power,
// use, memory and temperature. No library is needed.
#pragma once

#include <filesystem>
#include <memory>

#include "absl/status/statusor.h"
#include "common/power/power_meter.h"

namespace slackline::power {

//   kNotFound  there is none of those chosen
absl::StatusOr<std::unique_ptr<PowerMeter>> OpenAmdgpu(const std::filesystem::path& sysfs, const GpuChoice& choice);

}  // namespace slackline::power
