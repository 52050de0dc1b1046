#include "common/power/amdgpu_meter.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/power/read_file.h"

namespace slackline::power {
namespace {

struct AmdGpu {
  std::filesystem::path folder;   // of the PCI device
  std::filesystem::path sensors;  // hwmon
  std::string device;
};

std::optional<double> Scaled(const std::filesystem::path& path, double scale) {
  const std::optional<double> value = ReadValue<double>(path);
  if (!value) return std::nullopt;
  return scale * *value;
}

class AmdgpuMeter : public PowerMeter {
 public:
  explicit AmdgpuMeter(std::vector<AmdGpu> gpus) : gpus_(std::move(gpus)) {}

  std::vector<DeviceReading> Read() override {
    std::vector<DeviceReading> readings;
    for (const AmdGpu& gpu : gpus_) {
      DeviceReading reading;
      reading.device = gpu.device;
      // Newer ones only say what they take now.
      reading.watts = Scaled(gpu.sensors / "power1_average", 1e-6);
      if (!reading.watts) reading.watts = Scaled(gpu.sensors / "power1_input", 1e-6);
      if (!reading.watts) continue;
      reading.gpu_ratio = Scaled(gpu.folder / "gpu_busy_percent", 1e-2);
      reading.gpu_memory_bytes = Scaled(gpu.folder / "mem_info_vram_used", 1);
      reading.celsius = Scaled(gpu.sensors / "temp1_input", 1e-3);
      readings.push_back(std::move(reading));
    }
    return readings;
  }

 private:
  const std::vector<AmdGpu> gpus_;
};

std::vector<std::filesystem::path> EntriesOf(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> entries;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    entries.push_back(entry->path());
  }
  absl::c_sort(entries);
  return entries;
}

// PCI_SLOT_NAME of the device's uevent; empty where there is none.
std::string AddressOf(const std::filesystem::path& folder) {
  constexpr absl::string_view kKey = "PCI_SLOT_NAME=";
  std::ifstream file(folder / "uevent");
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, kKey)) return PciAddress(line.substr(kKey.size()));
  }
  return "";
}

// card0, not its connectors (card0-DP-1).
bool IsCard(const std::string& name) {
  return absl::StartsWith(name, "card") && name.size() > 4 && absl::c_all_of(name.substr(4), absl::ascii_isdigit);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PowerMeter>> OpenAmdgpu(const std::filesystem::path& sysfs, const GpuChoice& choice) {
  std::vector<AmdGpu> gpus;
  for (const std::filesystem::path& card : EntriesOf(sysfs / "class/drm")) {
    if (!IsCard(card.filename())) continue;
    const std::filesystem::path folder = card / "device";
    const std::string address = AddressOf(folder);
    if (address.empty() || (choice && !absl::c_linear_search(*choice, address))) continue;
    for (const std::filesystem::path& sensors : EntriesOf(folder / "hwmon")) {
      if (ReadValue<std::string>(sensors / "name") != "amdgpu") continue;
      gpus.push_back({.folder = folder, .sensors = sensors, .device = absl::StrCat("gpu-", address)});
      break;
    }
  }
  if (gpus.empty()) return absl::NotFoundError("there is no GPU of AMD's that is to be metered");
  return std::make_unique<AmdgpuMeter>(std::move(gpus));
}

}  // namespace slackline::power
