// Fake GPUs as LibTorch sees them: its CUDA devices, in a build of LibTorch for CPUs.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/played/torch.h"

#include "tests/worker/played/clocks.h"

namespace slackline::worker::played {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::CUDA;

// Inside of an operator that is done by the CPU, all else belongs to that.
thread_local int inside = 0;

StreamName CurrentOf(const c10::Device& device) {
  return CurrentOn(device.has_index() ? device.index() : CurrentGpu());
}

StreamName NameOf(const c10::Stream& stream) { return {.gpu = stream.device_index(), .id = stream.id()}; }

c10::Stream ToStream(const StreamName& name) { return c10::Stream(c10::Stream::UNSAFE, Gpu(name.gpu), name.id); }

class PlayedGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return Gpu(std::exchange(CurrentGpu(), device.index()));
  }
  c10::Device getDevice() const override { return Gpu(CurrentGpu()); }
  void setDevice(c10::Device device) const override { CurrentGpu() = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { CurrentGpu() = device.index(); }
  c10::DeviceIndex deviceCount() const noexcept override { return kGpus; }

  c10::Stream getStream(c10::Device device) const override { return ToStream(CurrentOf(device)); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return ToStream({.gpu = CurrentOf(device).gpu, .id = 0});
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device); }
  c10::Stream getNewStream(c10::Device device, int = 0) const override {
    return ToStream(Clocks::Get().NewStream(CurrentOf(device).gpu));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return ToStream(
        {.gpu = stream.device_index(), .id = std::exchange(CurrentStream(stream.device_index()), stream.id())});
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return HandleOf(NameOf(stream)); }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& stream) const override { Clocks::Get().Wait(NameOf(stream)); }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Clock();
    *static_cast<Clock*>(*event) = Clocks::Get().Record(NameOf(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) Clocks::Get().Await(*static_cast<Clock*>(event), NameOf(stream));
  }
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Clock*>(event); }
  void synchronizeEvent(void* event) const override { Clocks::Get().WaitFor(*static_cast<Clock*>(event)); }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    Clocks::Get().Keep(data.get(), NameOf(stream));
  }
};

class PlayedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const memory = Clocks::Get().Allocate(bytes, CurrentOf(Gpu(CurrentGpu())));
    return {memory, memory, &Delete, Gpu(CurrentGpu())};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void Delete(void* memory) { Clocks::Get().Free(memory); }
};

PlayedAllocator& AllocatorOfGpus() {
  static auto* const allocator = new PlayedAllocator();
  return *allocator;
}

class Inside {
 public:
  Inside() { ++inside; }
  ~Inside() { --inside; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

// From its first element to its last.
Range RangeOf(const at::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  return {tensor.const_data_ptr(), static_cast<size_t>(last + 1) * tensor.itemsize()};
}

bool IsPlayed(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kType; }

// The same memory, for the CPU.
at::Tensor OnHost(const at::Tensor& tensor) {
  if (!IsPlayed(tensor)) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), at::TensorOptions(tensor.scalar_type()));
}

at::Tensor Empty(c10::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<c10::Layout>,
                 std::optional<c10::Device> device, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &AllocatorOfGpus(), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   type.value_or(at::kFloat), format);
}

at::Tensor EmptyStrided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> type,
                        std::optional<c10::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, &AllocatorOfGpus(),
                                           c10::DispatchKeySet(c10::DispatchKey::CUDA), type.value_or(at::kFloat));
}

void LogCopy(const at::Tensor& from, const at::Tensor& to) {
  Clocks& gpus = Clocks::Get();
  if (IsPlayed(from) && IsPlayed(to)) {
    const StreamName stream = CurrentOf(from.device()), other = CurrentOf(to.device());
    if (stream.gpu == other.gpu) return gpus.Do(stream, {"copy", {RangeOf(from)}, {RangeOf(to)}});
    gpus.Chain(other, stream);
    gpus.Do(stream, {"copy between GPUs", {RangeOf(from)}, {RangeOf(to)}, /*of_other_gpus=*/true});
    return gpus.Chain(stream, other);
  }
  const StreamName stream = CurrentOf(IsPlayed(from) ? from.device() : to.device());
  if (IsPlayed(from)) gpus.Do(stream, {"copy to the host", {RangeOf(from)}, {}});
  if (IsPlayed(to)) gpus.Do(stream, {"copy from the host", {}, {RangeOf(to)}});
  gpus.Wait(stream);
}

// Between the host and a GPU, without stopping for it. False: such a copy needs the host.
bool CopyLater(const at::Tensor& from, const at::Tensor& to) {
  const at::Tensor& host = IsPlayed(from) ? to : from;
  if (!Clocks::Get().IsPinned(host.const_data_ptr()) || from.scalar_type() != to.scalar_type() ||
      !from.is_non_overlapping_and_dense() || from.sizes() != to.sizes() || from.strides() != to.strides()) {
    return false;
  }
  if (IsPlayed(from)) {
    Clocks::Get().CopyToHost(CurrentOf(from.device()), to.data_ptr(), from.const_data_ptr(), from.nbytes());
  } else {
    Clocks::Get().CopyFromHost(CurrentOf(to.device()), to.data_ptr(), from.const_data_ptr(), from.nbytes());
  }
  return true;
}

at::Tensor& Copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const bool crosses = IsPlayed(from) != IsPlayed(to);
  if (inside == 0 && crosses && non_blocking && CopyLater(from, to)) return to;
  const at::Tensor there = OnHost(to);
  there.copy_(OnHost(from));
  if (inside == 0) LogCopy(from, to);
  return to;
}

at::Tensor CopyFromAndResize(const at::Tensor& from, const at::Tensor& to) {
  at::Tensor into = to;
  // A result that an operation was given is of no size yet.
  if (from.sizes() != to.sizes()) {
    into.unsafeGetTensorImpl()->shallow_copy_from(at::empty(from.sizes(), to.options()).getIntrusivePtr());
  }
  return Copy(into, from, false);
}

at::Scalar Item(const at::Tensor& tensor) {
  if (inside == 0) LogCopy(tensor, at::Tensor());
  return OnHost(tensor).item();
}

struct Taken {
  std::vector<at::Tensor> reads;
  std::vector<at::Tensor> writes;
};

void Take(const c10::IValue& value, std::vector<at::Tensor>& into) {
  if (value.isTensor()) {
    into.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) into.push_back(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      if (tensor) into.push_back(*tensor);
    }
  }
}

// What an operator was given on the GPUs, on the stream of the first tensor's GPU.
void Log(const std::string& name, const Taken& taken) {
  Clocks::Accesses accesses = {.what = name, .reads = {}, .writes = {}};
  std::optional<StreamName> stream;
  for (auto [tensors, memory] :
       {std::pair(&taken.reads, &accesses.reads), std::pair(&taken.writes, &accesses.writes)}) {
    for (const at::Tensor& tensor : *tensors) {
      if (!IsPlayed(tensor) || tensor.numel() == 0) continue;
      if (!stream) stream = CurrentOf(tensor.device());
      memory->push_back(RangeOf(tensor));
    }
  }
  if (stream) Clocks::Get().Do(*stream, accesses);
}

void OnCpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  TORCH_CHECK(inside > 0 || !Clocks::Get().Fails(schema.name()), schema.name(), " is made to fail");
  Taken taken;
  const size_t first = stack->size() - schema.arguments().size();
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    Take((*stack)[first + i], alias != nullptr && alias->isWrite() ? taken.writes : taken.reads);
  }
  {
    const Inside here;
    at::native::cpu_fallback(op, stack);
  }
  for (size_t i = first; i < stack->size(); ++i) Take((*stack)[i], taken.writes);
  if (inside == 0) Log(schema.name(), taken);
}

// LibTorch has no convolution for devices that it does not know.
at::Tensor Convolve(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                    at::IntArrayRef output_padding, int64_t groups) {
  const Inside here;
  const at::Tensor made =
      at::convolution(OnHost(input), OnHost(weight), bias ? std::optional(OnHost(*bias)) : std::nullopt, stride,
                      padding, dilation, transposed, output_padding, groups)
          .to(input.device());
  if (inside == 1) Log("convolution", {.reads = {input, weight, bias.value_or(at::Tensor())}, .writes = {made}});
  return made;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> ConvolveBack(const at::Tensor& gradient, const at::Tensor& input,
                                                            const at::Tensor& weight, at::IntArrayRef stride,
                                                            at::IntArrayRef padding, at::IntArrayRef dilation,
                                                            bool transposed, at::IntArrayRef output_padding,
                                                            int64_t groups, std::array<bool, 3> mask) {
  const Inside here;
  auto [of_input, of_weight, of_bias] =
      at::convolution_backward(OnHost(gradient), OnHost(input), OnHost(weight), {{weight.size(0)}}, stride, padding,
                               dilation, transposed, output_padding, groups, mask);
  const auto back = [&](const at::Tensor& made) { return made.defined() ? made.to(input.device()) : made; };
  const std::array<at::Tensor, 3> made = {back(of_input), back(of_weight), back(of_bias)};
  if (inside == 1) {
    Log("convolution_backward", {.reads = {gradient, input, weight}, .writes = {made[0], made[1], made[2]}});
  }
  return {made[0], made[1], made[2]};
}

// Its schema does not say that it writes the running statistics.
std::tuple<at::Tensor, at::Tensor, at::Tensor> Normalise(const at::Tensor& input,
                                                         const std::optional<at::Tensor>& scale,
                                                         const std::optional<at::Tensor>& shift,
                                                         const std::optional<at::Tensor>& mean,
                                                         const std::optional<at::Tensor>& variance, bool training,
                                                         double momentum, double epsilon) {
  const Inside here;
  const auto on_host = [](const std::optional<at::Tensor>& tensor) {
    return tensor ? std::optional(OnHost(*tensor)) : std::nullopt;
  };
  auto [normed, saved_mean, saved_variance] = at::native_batch_norm(
      OnHost(input), on_host(scale), on_host(shift), on_host(mean), on_host(variance), training, momentum, epsilon);
  const std::array<at::Tensor, 3> made = {normed.to(input.device()), saved_mean.to(input.device()),
                                          saved_variance.to(input.device())};
  if (inside == 1) {
    Taken taken = {.reads = {input}, .writes = {made[0], made[1], made[2]}};
    for (const auto& tensor : {scale, shift}) taken.reads.push_back(tensor.value_or(at::Tensor()));
    for (const auto& tensor : {mean, variance}) {
      (training ? taken.writes : taken.reads).push_back(tensor.value_or(at::Tensor()));
    }
    Log("native_batch_norm", taken);
  }
  return {made[0], made[1], made[2]};
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &Empty);
  library.impl("empty_strided", &EmptyStrided);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("copy_", &Copy);
  library.impl("_copy_from_and_resize", &CopyFromAndResize);
  library.impl("_local_scalar_dense", &Item);
  library.impl("native_batch_norm", &Normalise);
  library.impl("convolution_overrideable", &Convolve);
  library.impl("convolution_backward_overrideable", &ConvolveBack);
}

TORCH_LIBRARY_IMPL(_, CUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&OnCpu>()); }

C10_REGISTER_GUARD_IMPL(CUDA, PlayedGuard);

}  // namespace

struct PlayedHooks final : public at::CUDAHooksInterface {
  explicit PlayedHooks(at::CUDAHooksArgs) {}

  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kGpus; }
  int getNumGPUs() const override { return kGpus; }
  c10::DeviceIndex current_device() const override { return static_cast<c10::DeviceIndex>(CurrentGpu()); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(CurrentGpu()); }
  bool isPinnedPtr(const void* memory) const override { return Clocks::Get().IsPinned(memory); }
  at::Device getDeviceFromPtr(void* memory) const override {
    const int gpu = Clocks::Get().GpuOf(memory);
    TORCH_CHECK(gpu >= 0, "this is no memory of a GPU");
    return Gpu(gpu);
  }
};

at::Device Gpu(int index) { return {kType, static_cast<c10::DeviceIndex>(index)}; }

}  // namespace slackline::worker::played

namespace at {
using slackline::worker::played::PlayedHooks;
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, PlayedHooks)
}  // namespace at
