#include "common/power/nvml_meter.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/process/dynamic_library.h"

namespace slackline::power {
namespace {

// As nvml.h has them; 0 is success everywhere.
using NvmlDevice = void*;
struct NvmlUse {
  unsigned gpu;  // per cent
  unsigned memory;
};
struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct NvmlPci {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned device_id;
  unsigned subsystem_id;
  char bus_id[32];
};
constexpr int kTemperatureOfGpu = 0;

struct Nvml {
  explicit Nvml(const std::string& name)
      : library(name),
        init(library.Find<int()>("nvmlInit_v2")),
        shutdown(library.Find<int()>("nvmlShutdown")),
        error(library.Find<const char*(int)>("nvmlErrorString")),
        count(library.Find<int(unsigned*)>("nvmlDeviceGetCount_v2")),
        by_index(library.Find<int(unsigned, NvmlDevice*)>("nvmlDeviceGetHandleByIndex_v2")),
        pci(library.Find<int(NvmlDevice, NvmlPci*)>("nvmlDeviceGetPciInfo_v3")),
        energy_mj(library.Find<int(NvmlDevice, unsigned long long*)>("nvmlDeviceGetTotalEnergyConsumption")),
        power_mw(library.Find<int(NvmlDevice, unsigned*)>("nvmlDeviceGetPowerUsage")),
        use(library.Find<int(NvmlDevice, NvmlUse*)>("nvmlDeviceGetUtilizationRates")),
        memory(library.Find<int(NvmlDevice, NvmlMemory*)>("nvmlDeviceGetMemoryInfo")),
        temperature(library.Find<int(NvmlDevice, int, unsigned*)>("nvmlDeviceGetTemperature")) {}

  bool complete() const {
    return init && shutdown && error && count && by_index && pci && power_mw && use && memory && temperature;
  }

  const DynamicLibrary library;
  int (*const init)();
  int (*const shutdown)();
  const char* (*const error)(int);
  int (*const count)(unsigned*);
  int (*const by_index)(unsigned, NvmlDevice*);
  int (*const pci)(NvmlDevice, NvmlPci*);
  int (*const energy_mj)(NvmlDevice, unsigned long long*);  // null in old ones
  int (*const power_mw)(NvmlDevice, unsigned*);
  int (*const use)(NvmlDevice, NvmlUse*);
  int (*const memory)(NvmlDevice, NvmlMemory*);
  int (*const temperature)(NvmlDevice, int, unsigned*);
};

struct Gpu {
  NvmlDevice handle = nullptr;
  std::string device;
  // At the beginning; absent where the GPU has no counter.
  std::optional<unsigned long long> first_mj;
};

std::optional<unsigned long long> EnergyOf(const Nvml& nvml, NvmlDevice handle) {
  unsigned long long energy = 0;
  if (nvml.energy_mj == nullptr || nvml.energy_mj(handle, &energy) != 0) return std::nullopt;
  return energy;
}

class NvmlMeter : public PowerMeter {
 public:
  // `nvml` is initialised.
  explicit NvmlMeter(std::unique_ptr<Nvml> nvml) : nvml_(std::move(nvml)) {}
  NvmlMeter(const NvmlMeter&) = delete;
  NvmlMeter& operator=(const NvmlMeter&) = delete;
  ~NvmlMeter() override { nvml_->shutdown(); }

  // Returns the addresses of all that are there.
  std::vector<std::string> Choose(const GpuChoice& choice) {
    unsigned count = 0;
    if (nvml_->count(&count) != 0) count = 0;
    std::vector<std::string> addresses;
    for (unsigned i = 0; i < count; ++i) {
      NvmlDevice handle = nullptr;
      NvmlPci pci = {};
      if (nvml_->by_index(i, &handle) != 0 || nvml_->pci(handle, &pci) != 0) continue;
      const std::string address = PciAddress(pci.bus_id);
      addresses.push_back(address);
      if (choice && !absl::c_linear_search(*choice, address)) continue;
      gpus_.push_back(
          {.handle = handle, .device = absl::StrCat("gpu-", address), .first_mj = EnergyOf(*nvml_, handle)});
    }
    return addresses;
  }

  bool empty() const { return gpus_.empty(); }

  std::vector<DeviceReading> Read() override {
    std::vector<DeviceReading> readings;
    for (const Gpu& gpu : gpus_) {
      DeviceReading reading = ReadOne(gpu);
      if (reading.joules || reading.watts) readings.push_back(std::move(reading));
    }
    return readings;
  }

 private:
  DeviceReading ReadOne(const Gpu& gpu) const {
    DeviceReading reading;
    reading.device = gpu.device;
    if (gpu.first_mj) {
      // The driver counts anew when it is loaded again.
      const std::optional<unsigned long long> now = EnergyOf(*nvml_, gpu.handle);
      if (now && *now >= *gpu.first_mj) reading.joules = 1e-3 * static_cast<double>(*now - *gpu.first_mj);
    }
    unsigned milliwatts = 0;
    if (nvml_->power_mw(gpu.handle, &milliwatts) == 0) reading.watts = 1e-3 * milliwatts;
    NvmlUse use = {};
    if (nvml_->use(gpu.handle, &use) == 0) reading.gpu_ratio = 1e-2 * use.gpu;
    NvmlMemory memory = {};
    if (nvml_->memory(gpu.handle, &memory) == 0) reading.gpu_memory_bytes = static_cast<double>(memory.used);
    unsigned celsius = 0;
    if (nvml_->temperature(gpu.handle, kTemperatureOfGpu, &celsius) == 0) reading.celsius = celsius;
    return reading;
  }

  const std::unique_ptr<Nvml> nvml_;
  std::vector<Gpu> gpus_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PowerMeter>> OpenNvml(const std::string& library, const GpuChoice& choice) {
  auto nvml = std::make_unique<Nvml>(library);
  if (!nvml->library.there()) return absl::NotFoundError(absl::StrCat("there is no ", library, " (NVIDIA's driver)"));
  if (!nvml->complete()) {
    return absl::UnavailableError(
        absl::StrCat(library, " is not NVML, or one from before 2018: functions are missing"));
  }
  if (const int said = nvml->init(); said != 0) {
    return absl::UnavailableError(absl::StrCat(library, " says: ", nvml->error(said)));
  }
  auto meter = std::make_unique<NvmlMeter>(std::move(nvml));
  const std::vector<std::string> there = meter->Choose(choice);
  if (meter->empty()) {
    return absl::NotFoundError(absl::StrCat(library, " shows ", there.empty() ? "no GPU" : absl::StrJoin(there, ", "),
                                            choice ? "; wanted " + absl::StrJoin(*choice, ", ") : std::string()));
  }
  return meter;
}

}  // namespace slackline::power
