#include "absl/strings/str_cat.h"
#include "worker/cuda/gpus.h"
#include "worker/cuda/runtime.h"

namespace slackline::worker::gpu {

GpusHere FindGpus() {
  GpusHere here;
  // Without a driver CUDA says that it is too old.
  int driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) {
    here.why_none = "there is no driver for GPUs";
    return here;
  }
  int count = 0;
  const cudaError_t said = cudaGetDeviceCount(&count);
  if (said != cudaSuccess || count == 0) {
    here.why_none = absl::StrCat("CUDA says ", cudaGetErrorString(said == cudaSuccess ? cudaErrorNoDevice : said));
    return here;
  }
  if (LibTorchForGpus().empty()) {
    here.why_none = absl::StrCat("CUDA finds ", count, ", but LibTorch ", LibTorchVersion(),
                                 " is a build for CPUs (scripts/cuda_toolchain --libtorch)");
    return here;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    const bool known = cudaGetDeviceProperties(&properties, i) == cudaSuccess;
    here.names.push_back(known ? properties.name : "of no known name");
  }
  return here;
}

std::vector<std::string> PciAddresses(const std::vector<Device>& devices) {
  std::vector<std::string> addresses;
  for (const Device& device : devices) {
    char address[32] = "";
    if (device.kind != Device::Kind::kCuda) continue;
    if (cudaDeviceGetPCIBusId(address, sizeof(address), static_cast<int>(device.index)) == cudaSuccess) {
      addresses.emplace_back(address);
    }
  }
  return addresses;
}

}  // namespace slackline::worker::gpu
