// The meters of this machine.
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
  // Without a value all; an empty list none.
  GpuChoice gpus = std::vector<std::string>();
};

struct MetersFound {
  std::vector<std::unique_ptr<PowerMeter>> meters;
  // What is there and cannot be used, or was asked for and is not there, and what to do; for people.
  std::vector<std::string> complaints;
};

MetersFound FindMeters(const MeterOptions& options);

}  // namespace slackline::power
