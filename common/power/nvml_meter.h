// NVIDIA's GPUs, by the library that comes with their driver (NVML). It is loaded when it is asked for: nothing is
// linked, and none of its headers is needed.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/power/power_meter.h"

namespace slackline::power {

// Energy from the GPU's own counter where it has one (Volta and later), else only power; use, memory, temperature.
//   kNotFound     the library is not there, or it finds none of the GPUs chosen
//   kUnavailable  the library is there and does not work; says what it said
absl::StatusOr<std::unique_ptr<PowerMeter>> OpenNvml(const std::string& library, const GpuChoice& choice);

}  // namespace slackline::power
