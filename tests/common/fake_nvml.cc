// A fake libnvidia-ml.so.1 with two GPUs: 0000:65:00.0 of 200 W, which counts its energy, and 0000:b3:00.0 of 100 W,
// which does not. Time is the steady clock's until fake_nvml_set_ms() sets it.
#include <chrono>
#include <cstdio>
#include <cstring>

namespace {

long long set_ms = -1;
bool broken = false;

unsigned long long NowMs() {
  if (set_ms >= 0) return static_cast<unsigned long long>(set_ms);
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<unsigned long long>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

int gpus[2] = {0, 1};

unsigned IndexOf(void* device) { return static_cast<unsigned>(*static_cast<int*>(device)); }

struct Pci {
  char bus_id_legacy[16];
  unsigned numbers[5];
  char bus_id[32];
};

constexpr int kNotSupported = 3;
constexpr int kDriverNotLoaded = 9;

}  // namespace

extern "C" {

void fake_nvml_set_ms(long long ms) { set_ms = ms; }
void fake_nvml_break(int is_broken) { broken = is_broken != 0; }

int nvmlInit_v2() { return broken ? kDriverNotLoaded : 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int error) { return error == kDriverNotLoaded ? "Driver Not Loaded" : "Unknown Error"; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = &gpus[index];
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* device, Pci* pci) {
  *pci = {};
  std::snprintf(pci->bus_id, sizeof(pci->bus_id), "00000000:%s:00.0", IndexOf(device) == 0 ? "65" : "B3");
  return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  if (IndexOf(device) != 0) return kNotSupported;
  *millijoules = 200 * NowMs();
  return 0;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  *milliwatts = IndexOf(device) == 0 ? 200000 : 100000;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned* gpu_and_memory) {
  gpu_and_memory[0] = IndexOf(device) == 0 ? 75 : 0;
  gpu_and_memory[1] = 10;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* /*device*/, unsigned long long* total_free_used) {
  total_free_used[0] = 8ull << 30;
  total_free_used[1] = 6ull << 30;
  total_free_used[2] = 2ull << 30;
  return 0;
}
int nvmlDeviceGetTemperature(void* device, int /*sensor*/, unsigned* celsius) {
  *celsius = 60 + IndexOf(device);
  return 0;
}

}  // extern "C"
