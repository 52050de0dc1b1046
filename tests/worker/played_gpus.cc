#include "tests/worker/played_gpus.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"

namespace slackline::worker::played {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
constexpr size_t kCacheLine = 64;

struct StreamName {
  int gpu = 0;
  c10::StreamId id = 0;
  auto operator<=>(const StreamName&) const = default;
};

std::string ToText(const StreamName& stream) { return absl::StrCat("stream ", stream.id, " of GPU ", stream.gpu); }

// How far each stream was.
using Clock = std::map<StreamName, uint64_t>;

void Join(Clock& clock, const Clock& other) {
  for (const auto& [stream, time] : other) clock[stream] = std::max(clock[stream], time);
}

bool Knows(const Clock& clock, const StreamName& stream, uint64_t time) {
  const auto known = clock.find(stream);
  return known != clock.end() && known->second >= time;
}

// What this thread of the host has waited for.
thread_local Clock host_clock;
thread_local int current_gpu = 0;
thread_local std::array<c10::StreamId, kGpus> current_streams = {};
// Inside of an operator that is done by the CPU, all else belongs to that.
thread_local int inside = 0;

StreamName CurrentOf(const c10::Device& device) {
  const int gpu = device.has_index() ? device.index() : current_gpu;
  return {.gpu = gpu, .id = current_streams[gpu]};
}

// Thread-safety: safe.
class Gpus {
 public:
  static Gpus& Get() {
    static auto* const gpus = new Gpus();
    return *gpus;
  }

  void* Allocate(size_t bytes, const StreamName& home) {
    void* const memory = std::aligned_alloc(kCacheLine, (bytes / kCacheLine + 1) * kCacheLine);
    absl::MutexLock lock(&mutex_);
    blocks_[static_cast<char*>(memory)] = {.bytes = bytes, .home = home};
    Bytes& used = bytes_[home.gpu];
    used.now += bytes;
    used.most = std::max(used.most, used.now);
    return memory;
  }

  void Free(void* memory) {
    {
      absl::MutexLock lock(&mutex_);
      const auto block = blocks_.find(static_cast<char*>(memory));
      SLACKLINE_CHECK(block != blocks_.end());
      CheckFree(block->second);
      bytes_[block->second.home.gpu].now -= block->second.bytes;
      blocks_.erase(block);
    }
    std::free(memory);
  }

  void Keep(const void* memory, const StreamName& stream) {
    absl::MutexLock lock(&mutex_);
    if (Memory* block = Find(memory)) block->kept.insert(stream);
  }

  int GpuOf(const void* memory) {
    absl::MutexLock lock(&mutex_);
    const Memory* const block = Find(memory);
    return block != nullptr ? block->home.gpu : -1;
  }

  struct Accesses {
    std::string what;
    std::vector<const void*> reads;
    std::vector<const void*> writes;
  };
  // What a stream is given.
  void Do(const StreamName& stream, const Accesses& accesses) {
    absl::MutexLock lock(&mutex_);
    const uint64_t time = Tick(stream);
    ++operators_[stream];
    for (const void* memory : accesses.reads) Access({accesses.what, stream, time}, memory, false);
    for (const void* memory : accesses.writes) Access({accesses.what, stream, time}, memory, true);
  }

  StreamName NewStream(int gpu) {
    absl::MutexLock lock(&mutex_);
    return {.gpu = gpu, .id = ++last_stream_[gpu]};
  }
  Clock Record(const StreamName& stream) {
    absl::MutexLock lock(&mutex_);
    Tick(stream);
    return clocks_[stream];
  }
  void Await(const Clock& event, const StreamName& stream) {
    absl::MutexLock lock(&mutex_);
    Join(clocks_[stream], event);
  }
  void Chain(const StreamName& before, const StreamName& after) { Await(Record(before), after); }
  void Wait(const StreamName& stream) {
    absl::MutexLock lock(&mutex_);
    Tick(stream);
    Join(host_clock, clocks_[stream]);
    std::erase_if(host_copies_, [](const Stamp& copy) { return Knows(host_clock, copy.stream, copy.time); });
  }
  void WaitFor(const Clock& event) { Join(host_clock, event); }
  // Of what the stream was given last.
  void CopyIsUnderWay(const StreamName& stream) {
    absl::MutexLock lock(&mutex_);
    host_copies_.push_back({"copy", stream, clocks_[stream][stream]});
  }

  void Fault(const std::string& fault) {
    absl::MutexLock lock(&mutex_);
    faults_.insert(fault);
  }
  std::vector<std::string> TakeFaults() {
    absl::MutexLock lock(&mutex_);
    const std::set<std::string> faults = std::exchange(faults_, {});
    return {faults.begin(), faults.end()};
  }
  size_t copies_under_way() {
    absl::MutexLock lock(&mutex_);
    return host_copies_.size();
  }
  Bytes TakeBytes(int gpu) {
    absl::MutexLock lock(&mutex_);
    return std::exchange(bytes_[gpu], {.now = bytes_[gpu].now, .most = bytes_[gpu].now});
  }
  size_t OperatorsOnDefaultStream(int gpu) {
    absl::MutexLock lock(&mutex_);
    return operators_[{.gpu = gpu, .id = 0}];
  }
  void FailOn(const std::string& what, size_t count) {
    absl::MutexLock lock(&mutex_);
    failing_ = what;
    until_failure_ = count;
  }
  // Whether it is to fail now.
  bool Fails(const std::string& what) {
    absl::MutexLock lock(&mutex_);
    return what == failing_ && until_failure_ > 0 && --until_failure_ == 0;
  }

 private:
  struct Stamp {
    std::string what;
    StreamName stream;
    uint64_t time = 0;
  };
  struct Memory {
    size_t bytes = 0;
    StreamName home = {};  // where it was allocated
    std::map<StreamName, Stamp> reads = {};
    std::map<StreamName, Stamp> writes = {};
    std::set<StreamName> kept = {};
  };

  uint64_t Tick(const StreamName& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Clock& clock = clocks_[stream];
    Join(clock, host_clock);
    return ++clock[stream];
  }

  Memory* Find(const void* memory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto after = blocks_.upper_bound(static_cast<char*>(const_cast<void*>(memory)));
    if (after == blocks_.begin()) return nullptr;
    const auto& block = *--after;
    return memory <= block.first + block.second.bytes ? &after->second : nullptr;
  }

  void Access(const Stamp& now, const void* memory, bool writes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Memory* const block = Find(memory);
    if (block == nullptr) {
      faults_.insert(absl::StrCat(now.what, " on ", ToText(now.stream), " is given memory of the host"));
      return;
    }
    if (block->home.gpu != now.stream.gpu && now.what != "copy between GPUs") {
      faults_.insert(absl::StrCat(now.what, " on ", ToText(now.stream), " is given memory of GPU ", block->home.gpu));
    }
    const auto check = [&](const std::map<StreamName, Stamp>& others, const char* did) {
      for (const auto& [stream, other] : others) {
        if (Knows(clocks_[now.stream], stream, other.time)) continue;
        faults_.insert(absl::StrCat(now.what, " ", writes ? "writes" : "reads", " on ", ToText(now.stream), " what ",
                                    other.what, " ", did, " on ", ToText(stream), ", and nothing orders them"));
      }
    };
    check(block->writes, "writes");
    if (writes) check(block->reads, "reads");
    (writes ? block->writes : block->reads)[now.stream] = now;
  }

  void CheckFree(const Memory& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Clock known = clocks_[block.home];
    Join(known, host_clock);
    for (const auto* accesses : {&block.reads, &block.writes}) {
      for (const auto& [stream, other] : *accesses) {
        if (stream == block.home || block.kept.contains(stream) || Knows(known, stream, other.time)) continue;
        faults_.insert(absl::StrCat("memory of ", ToText(block.home), " is given back while ", other.what,
                                    " uses it on ", ToText(stream), ", for which it is not kept"));
      }
    }
  }

  absl::Mutex mutex_;
  std::map<char*, Memory> blocks_ ABSL_GUARDED_BY(mutex_);
  std::map<StreamName, Clock> clocks_ ABSL_GUARDED_BY(mutex_);
  std::map<StreamName, size_t> operators_ ABSL_GUARDED_BY(mutex_);
  std::array<c10::StreamId, kGpus> last_stream_ ABSL_GUARDED_BY(mutex_) = {};
  std::array<Bytes, kGpus> bytes_ ABSL_GUARDED_BY(mutex_) = {};
  std::vector<Stamp> host_copies_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> faults_ ABSL_GUARDED_BY(mutex_);
  std::string failing_ ABSL_GUARDED_BY(mutex_);
  size_t until_failure_ ABSL_GUARDED_BY(mutex_) = 0;
};

StreamName NameOf(const c10::Stream& stream) { return {.gpu = stream.device_index(), .id = stream.id()}; }

c10::Stream ToStream(const StreamName& name) { return c10::Stream(c10::Stream::UNSAFE, Gpu(name.gpu), name.id); }

class PlayedGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return Gpu(std::exchange(current_gpu, device.index()));
  }
  c10::Device getDevice() const override { return Gpu(current_gpu); }
  void setDevice(c10::Device device) const override { current_gpu = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current_gpu = device.index(); }
  c10::DeviceIndex deviceCount() const noexcept override { return kGpus; }

  c10::Stream getStream(c10::Device device) const override { return ToStream(CurrentOf(device)); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return ToStream({.gpu = CurrentOf(device).gpu, .id = 0});
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device); }
  c10::Stream getNewStream(c10::Device device, int = 0) const override {
    return ToStream(Gpus::Get().NewStream(CurrentOf(device).gpu));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return ToStream(
        {.gpu = stream.device_index(), .id = std::exchange(current_streams[stream.device_index()], stream.id())});
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& stream) const override { Gpus::Get().Wait(NameOf(stream)); }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Clock();
    *static_cast<Clock*>(*event) = Gpus::Get().Record(NameOf(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) Gpus::Get().Await(*static_cast<Clock*>(event), NameOf(stream));
  }
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Clock*>(event); }
  void synchronizeEvent(void* event) const override { Gpus::Get().WaitFor(*static_cast<Clock*>(event)); }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    Gpus::Get().Keep(data.get(), NameOf(stream));
  }
};

class PlayedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const memory = Gpus::Get().Allocate(bytes, CurrentOf(Gpu(current_gpu)));
    return {memory, memory, &Delete, Gpu(current_gpu)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void Delete(void* memory) { Gpus::Get().Free(memory); }
};

PlayedAllocator& AllocatorOfGpus() {
  static auto* const allocator = new PlayedAllocator();
  return *allocator;
}

struct PlayedHooks final : public at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kGpus; }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current_gpu); }
  at::Device getDeviceFromPtr(void* memory) const override {
    const int gpu = Gpus::Get().GpuOf(memory);
    TORCH_CHECK(gpu >= 0, "this is no memory of a GPU");
    return Gpu(gpu);
  }
};

class Inside {
 public:
  Inside() { ++inside; }
  ~Inside() { --inside; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

bool IsPlayed(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kType; }

// The same memory, for the CPU.
at::Tensor OnHost(const at::Tensor& tensor) {
  if (!IsPlayed(tensor)) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), at::TensorOptions(tensor.scalar_type()));
}

at::Tensor Empty(c10::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<c10::Layout>,
                 std::optional<c10::Device> device, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &AllocatorOfGpus(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), format);
}

at::Tensor EmptyStrided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> type,
                        std::optional<c10::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(
      size, stride, &AllocatorOfGpus(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type.value_or(at::kFloat));
}

void LogCopy(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  Gpus& gpus = Gpus::Get();
  if (IsPlayed(from) && IsPlayed(to)) {
    const StreamName stream = CurrentOf(from.device()), other = CurrentOf(to.device());
    if (stream.gpu == other.gpu) return gpus.Do(stream, {"copy", {from.data_ptr()}, {to.data_ptr()}});
    gpus.Chain(other, stream);
    gpus.Do(stream, {"copy between GPUs", {from.data_ptr()}, {to.data_ptr()}});
    return gpus.Chain(stream, other);
  }
  const StreamName stream = CurrentOf(IsPlayed(from) ? from.device() : to.device());
  if (IsPlayed(from)) gpus.Do(stream, {"copy to the host", {from.data_ptr()}, {}});
  if (IsPlayed(to)) gpus.Do(stream, {"copy from the host", {}, {to.data_ptr()}});
  if (non_blocking) return gpus.CopyIsUnderWay(stream);
  gpus.Wait(stream);
}

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  OnHost(to).copy_(OnHost(from));
  if (inside == 0) LogCopy(from, to, non_blocking);
  return to;
}

at::Tensor CopyFromAndResize(const at::Tensor& from, const at::Tensor& to) {
  TORCH_CHECK(from.sizes() == to.sizes(), "the played GPUs resize nothing");
  return CopyFrom(from, to, false);
}

at::Scalar Item(const at::Tensor& tensor) {
  if (inside == 0) LogCopy(tensor, at::Tensor(), false);
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
  Gpus::Accesses accesses = {.what = name, .reads = {}, .writes = {}};
  std::optional<StreamName> stream;
  for (auto [tensors, memory] :
       {std::pair(&taken.reads, &accesses.reads), std::pair(&taken.writes, &accesses.writes)}) {
    for (const at::Tensor& tensor : *tensors) {
      if (!IsPlayed(tensor) || tensor.numel() == 0) continue;
      if (!stream) stream = CurrentOf(tensor.device());
      memory->push_back(tensor.data_ptr());
    }
  }
  if (stream) Gpus::Get().Do(*stream, accesses);
}

void OnCpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  TORCH_CHECK(inside > 0 || !Gpus::Get().Fails(schema.name()), schema.name(), " is made to fail");
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

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &Empty);
  library.impl("empty_strided", &EmptyStrided);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("_copy_from", &CopyFrom);
  library.impl("_copy_from_and_resize", &CopyFromAndResize);
  library.impl("_local_scalar_dense", &Item);
  library.impl("convolution_overrideable", &Convolve);
  library.impl("convolution_backward_overrideable", &ConvolveBack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&OnCpu>()); }

C10_REGISTER_GUARD_IMPL(PrivateUse1, PlayedGuard);

const bool kRegistered = [] {
  c10::register_privateuse1_backend("played");
  at::RegisterPrivateUse1HooksInterface(new PlayedHooks());
  return true;
}();

}  // namespace

at::Device Gpu(int index) { return {kType, static_cast<c10::DeviceIndex>(index)}; }

std::vector<std::string> TakeFaults() { return Gpus::Get().TakeFaults(); }
size_t CopiesUnderWay() { return Gpus::Get().copies_under_way(); }
Bytes TakeBytes(int gpu) { return Gpus::Get().TakeBytes(gpu); }
size_t OperatorsOnDefaultStream(int gpu) { return Gpus::Get().OperatorsOnDefaultStream(gpu); }
void FailOn(const std::string& what, size_t count) { Gpus::Get().FailOn(what, count); }

}  // namespace slackline::worker::played
