// A device that a worker computes on, as the job file names it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace slackline {

struct Device {
  // A GPU is called cuda, as PyTorch calls it whoever made it.
  enum class Kind { kCpu, kCuda };

  Kind kind = Kind::kCpu;
  // Of a GPU, as this process sees them.
  uint32_t index = 0;

  bool operator==(const Device&) const = default;
};

// In worker.devices: all GPUs, or a cpu where there is none.
inline constexpr absl::string_view kAutoDevices = "auto";

// "cpu", "cuda:0"; nullopt of anything else.
std::optional<Device> ParseDevice(absl::string_view text);
// What ParseDevice() reads.
std::string ToString(const Device& device);

}  // namespace slackline
