// Meters of power and energy: what each says of its devices.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace slackline::power {

// What a meter says of one device now. What it cannot say is absent.
struct DeviceReading {
  // The same in all processes of the machine: package-0, package-0-dram, gpu-0000:65:00.0.
  std::string device;
  // Of energy, since the meter was opened: never falls.
  std::optional<double> joules;
  std::optional<double> watts;
  // Of a GPU: the share of the last moments in which it computed, and its memory in use.
  std::optional<double> gpu_ratio;
  std::optional<double> gpu_memory_bytes;
  std::optional<double> celsius;
};

// Thread-safety: none.
class PowerMeter {
 public:
  virtual ~PowerMeter() = default;

  // A reading of each device; a device that cannot be read now is left out.
  virtual std::vector<DeviceReading> Read() = 0;
};

// Which GPUs are metered: nullopt means all; else those with these PCI addresses, as PciAddress() writes them.
using GpuChoice = std::optional<std::vector<std::string>>;

// "0000:65:00.0" of whatever drivers say: 00000000:65:00.0, 0000:65:00.0 in either case.
std::string PciAddress(const std::string& text);

}  // namespace slackline::power
