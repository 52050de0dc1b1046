#include "worker/machine/devices.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"

namespace slackline::worker {

std::vector<Device> AllOf(const GpusHere& here) {
  std::vector<Device> devices;
  for (uint32_t i = 0; i < here.names.size(); ++i) devices.push_back({.kind = Device::Kind::kCuda, .index = i});
  if (devices.empty()) devices.push_back({});
  return devices;
}

namespace {

std::string ToText(const GpusHere& here) {
  if (here.names.empty()) return absl::StrCat("here is none: ", here.why_none);
  std::vector<std::string> shown;
  for (const Device& device : AllOf(here)) {
    shown.push_back(absl::StrCat(ToString(device), " (", here.names[device.index], ")"));
  }
  return absl::StrCat(here.names.size() == 1 ? "here is " : "here are ", absl::StrJoin(shown, ", "));
}

}  // namespace

absl::StatusOr<std::vector<Device>> ResolveDevices(const std::vector<std::string>& wanted, const GpusHere& here,
                                                   const std::string& key) {
  if (wanted.empty()) return std::vector<Device>{Device{}};
  if (wanted.size() == 1 && wanted.front() == kAutoDevices) return AllOf(here);
  std::vector<Device> devices;
  for (const std::string& name : wanted) {
    const std::optional<Device> device = ParseDevice(name);
    SLACKLINE_CHECK(device);
    if (device->kind == Device::Kind::kCuda && device->index >= here.names.size()) {
      return absl::FailedPreconditionError(absl::StrCat(key, ": ", name, " was asked for; ", ToText(here)));
    }
    devices.push_back(*device);
  }
  return devices;
}

}  // namespace slackline::worker
