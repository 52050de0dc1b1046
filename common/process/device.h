// A device that a worker computes on, as the job file names it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace slackline {

struct Device {
  // kCuda is any GPU. PyTorch also calls every GPU cuda, whoever made it.
  enum class Kind { kCpu, kCuda };

  Kind kind = Kind::kCpu;
  // Index of a GPU among those that this process sees.
  uint32_t index = 0;

  bool operator==(const Device&) const = default;
};

// Value of worker.devices that means all GPUs, or the CPU if there is no GPU.
inline constexpr absl::string_view kAutoDevices = "auto";

// Parses "cpu" or "cuda:0"; returns nullopt for any other text.
std::optional<Device> ParseDevice(absl::string_view text);
// Returns the text that ParseDevice() reads.
std::string ToString(const Device& device);

}  // namespace slackline
