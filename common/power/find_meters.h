// Finds the power and energy meters of this machine.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/power/power_meter.h"

namespace slackline::power {

struct MeterOptions {
  std::filesystem::path sysfs = "/sys";
  std::string nvml_library = "libnvidia-ml.so.1";
  // GPUs to meter; nullopt: all; an empty list: none.
  GpuChoice gpus = std::vector<std::string>();
};

struct MetersFound {
  std::vector<std::unique_ptr<PowerMeter>> meters;
  // Messages for people: devices that exist but cannot be used, or that were asked for but are missing, and the remedy.
  std::vector<std::string> complaints;
};

MetersFound FindMeters(const MeterOptions& options);

}  // namespace slackline::power
