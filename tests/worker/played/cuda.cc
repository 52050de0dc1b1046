// CUDA's runtime on fake GPUs.
#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>

#include "tests/worker/played/clocks.h"

using slackline::worker::played::Clock;
using slackline::worker::played::Clocks;
using slackline::worker::played::CurrentGpu;
using slackline::worker::played::HandleOf;
using slackline::worker::played::kGpus;
using slackline::worker::played::StreamName;
using slackline::worker::played::StreamOf;

namespace {

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t Say(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// What is made to fail, does.
cudaError_t Begin(const char* name) { return Say(Clocks::Get().Fails(name) ? cudaErrorUnknown : cudaSuccess); }

Clock& ClockOf(cudaEvent_t event) { return *reinterpret_cast<Clock*>(event); }

}  // namespace

extern "C" {

cudaError_t cudaDeviceGetPCIBusId(char* /*address*/, int /*size*/, int /*device*/) {
  return Say(cudaErrorInvalidValue);
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = kGpus;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*device*/) {
  std::strcpy(properties->name, "a played GPU");
  return cudaSuccess;
}

// A device's thread begins a step with it, after somebody has heard of the last one's end.
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= kGpus) return Say(cudaErrorInvalidValue);
  CurrentGpu() = device;
  Clocks::Get().HearOfCalls();
  return Begin("cudaSetDevice");
}

cudaError_t cudaDeviceSynchronize() {
  Clocks::Get().WaitForGpu(CurrentGpu());
  return Begin("cudaDeviceSynchronize");
}

cudaError_t cudaGetLastError() {
  const cudaError_t said = last_error;
  last_error = cudaSuccess;
  return said;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    default:
      return "cudaErrorUnknown";
  }
}

const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "made to fail"; }

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  const int gpu = Clocks::Get().GpuOf(memory);
  *attributes = {gpu >= 0                         ? cudaMemoryTypeDevice
                 : Clocks::Get().IsPinned(memory) ? cudaMemoryTypeHost
                                                  : cudaMemoryTypeUnregistered,
                 gpu >= 0 ? gpu : CurrentGpu()};
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (const cudaError_t said = Begin("cudaMalloc"); said != cudaSuccess) return said;
  *memory = Clocks::Get().Allocate(bytes, {.gpu = CurrentGpu(), .id = 0}, Clocks::By::kGpu);
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  Clocks::Get().WaitForGpu(Clocks::Get().GpuOf(memory));
  Clocks::Get().Free(memory);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned /*flags*/) {
  if (const cudaError_t said = Begin("cudaHostAlloc"); said != cudaSuccess) return said;
  constexpr size_t kPage = 4096;
  *memory = std::aligned_alloc(kPage, (bytes / kPage + 1) * kPage);
  Clocks::Get().Pin(*memory, bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  Clocks::Get().Unpin(memory);
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned /*flags*/) {
  if (const cudaError_t said = Begin("cudaHostRegister"); said != cudaSuccess) return said;
  Clocks::Get().Pin(memory, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (const cudaError_t said = Begin("cudaMemcpyAsync"); said != cudaSuccess) return said;
  if (bytes == 0) return cudaSuccess;
  const StreamName name = StreamOf(stream);
  const bool in = kind == cudaMemcpyHostToDevice;
  if (in) {
    Clocks::Get().CopyFromHost(name, to, from, bytes);
  } else {
    Clocks::Get().CopyToHost(name, to, from, bytes);
  }
  // The host's memory can be moved: CUDA does it at once, or through memory of its own.
  if (!Clocks::Get().IsPinned(in ? from : to)) Clocks::Get().Wait(name);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t said = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  if (said == cudaSuccess) Clocks::Get().Wait(StreamOf(nullptr));
  return said;
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  if (const cudaError_t said = Begin("cudaMemsetAsync"); said != cudaSuccess) return said;
  if (bytes == 0) return cudaSuccess;
  Clocks::Get().Do(StreamOf(stream), {.what = "cudaMemsetAsync", .writes = {{memory, bytes}}});
  std::memset(memory, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  *stream = static_cast<cudaStream_t>(HandleOf(Clocks::Get().NewStream(CurrentGpu())));
  return Begin("cudaStreamCreateWithFlags");
}

cudaError_t cudaStreamDestroy(cudaStream_t /*stream*/) { return cudaSuccess; }

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  Clocks::Get().Await(ClockOf(event), StreamOf(stream));
  return Begin("cudaStreamWaitEvent");
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = reinterpret_cast<cudaEvent_t>(new Clock());
  return Begin("cudaEventCreateWithFlags");
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &ClockOf(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  ClockOf(event) = Clocks::Get().Record(StreamOf(stream));
  return Begin("cudaEventRecord");
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  if (const cudaError_t said = Begin("cudaLaunchHostFunc"); said != cudaSuccess) return said;
  Clocks::Get().CallOnHost(StreamOf(stream), [=] { function(data); });
  return cudaSuccess;
}

}  // extern "C"
