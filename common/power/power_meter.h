// Meters of power and energy. A meter reads one or more devices.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace slackline::power {

// The current reading of one device. Values that the meter cannot read are absent.
struct DeviceReading {
  // Name of the device, equal in all processes of the machine: package-0, package-0-dram, gpu-0000:65:00.0.
  std::string device;
  // Energy since the meter was opened; never falls.
  std::optional<double> joules;
  std::optional<double> watts;
  // GPUs only: the share of the last moments in which the GPU computed, and its memory in use.
  std::optional<double> gpu_ratio;
  std::optional<double> gpu_memory_bytes;
  std::optional<double> celsius;
};

// Thread-safety: none.
class PowerMeter {
 public:
  virtual ~PowerMeter() = default;

  // Returns a reading of each device, without the devices that cannot be read now.
  virtual std::vector<DeviceReading> Read() = 0;
};

// GPUs to meter: nullopt means all; otherwise those with these PCI addresses, as PciAddress() writes them.
using GpuChoice = std::optional<std::vector<std::string>>;

// Returns "0000:65:00.0" for the forms that drivers use: 00000000:65:00.0 or 0000:65:00.0, in upper or lower case.
std::string PciAddress(const std::string& text);

}  // namespace slackline::power
