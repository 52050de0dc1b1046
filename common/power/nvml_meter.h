// Meters of NVIDIA's GPUs, by the library that comes with their driver (NVML). The library is loaded on demand: no
// linking and none of its headers are needed.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/power/power_meter.h"

namespace slackline::power {

// Opens the meter. It reads energy from the GPU's own counter if there is one (Volta and later), otherwise only power;
// also use, memory and temperature.
//   kNotFound     the library is missing, or finds none of the chosen GPUs
//   kUnavailable  the library exists but does not work; gives its message
absl::StatusOr<std::unique_ptr<PowerMeter>> OpenNvml(const std::string& library, const GpuChoice& choice);

}  // namespace slackline::power
