#include "common/process/device.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace slackline {
namespace {

constexpr uint32_t kIndexMax = 1023;

}  // namespace

std::optional<Device> ParseDevice(absl::string_view text) {
  if (text == "cpu") return Device{};
  uint32_t index = 0;
  // One way to write each: no signs, spaces or leading zeros.
  if (!absl::ConsumePrefix(&text, "cuda:") || !absl::SimpleAtoi(text, &index) || index > kIndexMax) return std::nullopt;
  if (text != absl::StrCat(index)) return std::nullopt;
  return Device{.kind = Device::Kind::kCuda, .index = index};
}

std::string ToString(const Device& device) {
  return device.kind == Device::Kind::kCpu ? "cpu" : absl::StrCat("cuda:", device.index);
}

}  // namespace slackline
