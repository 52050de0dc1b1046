#include "common/power/find_meters.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "common/power/amdgpu_meter.h"
#include "common/power/nvml_meter.h"
#include "common/power/rapl_meter.h"

namespace slackline::power {

std::string PciAddress(const std::string& text) {
  std::string address = absl::AsciiStrToLower(absl::StripAsciiWhitespace(text));
  const size_t domain = address.find(':');
  if (domain != std::string::npos && domain > 4) address.erase(0, domain - 4);
  return address;
}

MetersFound FindMeters(const MeterOptions& options) {
  MetersFound found;
  const auto take = [&found](absl::StatusOr<std::unique_ptr<PowerMeter>> meter, bool wanted) {
    if (meter.ok()) {
      found.meters.push_back(*std::move(meter));
    } else if (wanted || !absl::IsNotFound(meter.status())) {
      found.complaints.emplace_back(meter.status().message());
    }
  };
  take(OpenRapl(options.sysfs), /*wanted=*/false);
  if (options.gpus && options.gpus->empty()) return found;
  absl::StatusOr<std::unique_ptr<PowerMeter>> amdgpu = OpenAmdgpu(options.sysfs, options.gpus);
  // That the worker computes on some and none is metered is worth a word.
  take(OpenNvml(options.nvml_library, options.gpus), /*wanted=*/options.gpus.has_value() && !amdgpu.ok());
  take(std::move(amdgpu), /*wanted=*/false);
  return found;
}

}  // namespace slackline::power
