#include "cli/doctor/probe_gpu.h"

#include "absl/strings/str_cat.h"
#include "common/dynamic_library.h"

namespace slackline::cli::doctor {
namespace {

// As nvml.h has them; 0 is success everywhere.
void AskNvml(GpuFacts& facts) {
  const DynamicLibrary nvml("libnvidia-ml.so.1");
  auto* init = nvml.Find<int()>("nvmlInit_v2");
  auto* shutdown = nvml.Find<int()>("nvmlShutdown");
  auto* driver = nvml.Find<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
  auto* count = nvml.Find<int(unsigned*)>("nvmlDeviceGetCount_v2");
  auto* device = nvml.Find<int(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2");
  auto* device_name = nvml.Find<int(void*, char*, unsigned)>("nvmlDeviceGetName");
  if (!init || !shutdown || !driver || !count || !device || !device_name || init() != 0) return;
  char text[128] = "";
  if (driver(text, sizeof(text)) == 0) facts.driver = text;
  unsigned devices = 0;
  if (count(&devices) != 0) devices = 0;
  for (unsigned i = 0; i < devices; ++i) {
    void* handle = nullptr;
    if (device(i, &handle) == 0 && device_name(handle, text, sizeof(text)) == 0) facts.names.push_back(text);
  }
  shutdown();
}

// 22803 is 2.28.3; before 2.9 it was 2804 for 2.8.4.
std::string NcclVersion() {
  const DynamicLibrary nccl("libnccl.so.2");
  auto* version = nccl.Find<int(int*)>("ncclGetVersion");
  int number = 0;
  if (version == nullptr || version(&number) != 0) return "";
  const int thousand = number >= 10000 ? 10000 : 1000;
  return absl::StrCat(number / thousand, ".", number % thousand / 100, ".", number % 100);
}

}  // namespace

GpuFacts ProbeGpu(const std::filesystem::path& root) {
  GpuFacts facts;
  std::error_code error;
  // Without the driver NVML would only say so, and NCCL has nothing to run on.
  if (!std::filesystem::exists(root / "proc/driver/nvidia", error)) return facts;
  AskNvml(facts);
  facts.nccl = NcclVersion();
  return facts;
}

}  // namespace slackline::cli::doctor
