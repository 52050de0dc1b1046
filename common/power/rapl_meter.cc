#include "common/power/rapl_meter.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/power/read_file.h"

namespace slackline::power {
namespace {

// One counter. It begins at 0 again after its largest value.
struct Zone {
  std::filesystem::path file;
  std::string device;
  uint64_t range_uj = 0;
  uint64_t last_uj = 0;
  uint64_t grown_uj = 0;
};

// Between two readings no processor takes half of the range, which lasts for minutes: a counter that fell by less than
// that was set back, and what it had counted until then is not known.
uint64_t Growth(const Zone& zone, uint64_t now) {
  if (now >= zone.last_uj) return now - zone.last_uj;
  const uint64_t over_the_end = zone.range_uj - std::min(zone.last_uj, zone.range_uj) + now;
  return over_the_end <= zone.range_uj / 2 ? over_the_end : 0;
}

class RaplMeter : public PowerMeter {
 public:
  explicit RaplMeter(std::vector<Zone> zones) : zones_(std::move(zones)) {}

  std::vector<DeviceReading> Read() override {
    std::vector<DeviceReading> readings;
    for (Zone& zone : zones_) {
      const std::optional<uint64_t> now = ReadValue<uint64_t>(zone.file);
      if (!now) continue;
      zone.grown_uj += Growth(zone, *now);
      zone.last_uj = *now;
      DeviceReading& reading = readings.emplace_back();
      reading.device = zone.device;
      reading.joules = 1e-6 * static_cast<double>(zone.grown_uj);
    }
    return readings;
  }

 private:
  std::vector<Zone> zones_;
};

// The folders of `folder` that are zones of this name: intel-rapl:0, or intel-rapl:0:1 within it.
std::vector<std::filesystem::path> ZonesIn(const std::filesystem::path& folder, const std::string& prefix) {
  std::vector<std::filesystem::path> zones;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename();
    // In /sys/class/powercap zones of all depths lie side by side.
    if (absl::StartsWith(name, prefix) && !absl::StrContains(name.substr(prefix.size()), ':'))
      zones.push_back(entry->path());
  }
  absl::c_sort(zones);
  return zones;
}

// Finds what may be read; counts what may not. A counter that stands at 0 has never counted: the kernel shows it, and
// nothing is behind it, as in some virtual machines, and with the dram of some processors.
class Search {
 public:
  void Add(const std::filesystem::path& folder, const std::string& device) {
    const std::optional<uint64_t> now = ReadValue<uint64_t>(folder / "energy_uj");
    if (!now) {
      ++unreadable_;
      return;
    }
    if (*now == 0) return;
    zones_.push_back({.file = folder / "energy_uj",
                      .device = device,
                      .range_uj = ReadValue<uint64_t>(folder / "max_energy_range_uj").value_or(0),
                      .last_uj = *now,
                      .grown_uj = 0});
  }

  int unreadable() const { return unreadable_; }
  std::vector<Zone> Take() { return std::move(zones_); }

 private:
  std::vector<Zone> zones_;
  int unreadable_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PowerMeter>> OpenRapl(const std::filesystem::path& sysfs) {
  const std::filesystem::path root = sysfs / "class/powercap";
  Search search;
  for (const std::filesystem::path& package : ZonesIn(root, "intel-rapl:")) {
    const std::string name = ReadValue<std::string>(package / "name").value_or("");
    if (!absl::StartsWith(name, "package-")) continue;
    search.Add(package, name);
    const std::string parts = absl::StrCat(package.filename().string(), ":");
    for (const std::filesystem::path& part : ZonesIn(root, parts)) {
      if (ReadValue<std::string>(part / "name") == "dram") search.Add(part, absl::StrCat(name, "-dram"));
    }
  }
  std::vector<Zone> zones = search.Take();
  if (zones.empty() && search.unreadable() == 0) {
    return absl::NotFoundError(absl::StrCat("the kernel shows no meter of processors (RAPL) in ", root.string()));
  }
  if (zones.empty()) {
    return absl::PermissionDeniedError(
        absl::StrCat("the meters of processors in ", root.string(),
                     " may not be read: most kernels let only root do so. An administrator may allow it until the next "
                     "boot: chmod a+r ",
                     root.string(), "/intel-rapl:*/energy_uj"));
  }
  return std::make_unique<RaplMeter>(std::move(zones));
}

}  // namespace slackline::power
