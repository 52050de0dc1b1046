#include "tests/worker/played/clocks.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace slackline::worker::played {
namespace {

constexpr size_t kCacheLine = 64;

std::string ToText(const StreamName& stream) { return absl::StrCat("stream ", stream.id, " of GPU ", stream.gpu); }

void Join(Clock& clock, const Clock& other) {
  for (const auto& [stream, time] : other) clock[stream] = std::max(clock[stream], time);
}

bool Knows(const Clock& clock, const StreamName& stream, uint64_t time) {
  const auto known = clock.find(stream);
  return known != clock.end() && known->second >= time;
}

// What this thread of the host has waited for.
thread_local Clock host_clock;

}  // namespace

int& CurrentGpu() {
  thread_local int gpu = 0;
  return gpu;
}

int64_t& CurrentStream(int gpu) {
  thread_local std::array<int64_t, kGpus> streams = {};
  return streams.at(static_cast<size_t>(gpu));
}

void* HandleOf(const StreamName& stream) {
  static absl::Mutex mutex(absl::kConstInit);
  static auto* const names = new std::set<StreamName>();
  if (stream.id == 0) return nullptr;
  absl::MutexLock lock(&mutex);
  return const_cast<StreamName*>(&*names->insert(stream).first);
}

StreamName StreamOf(const void* handle) {
  return handle != nullptr ? *static_cast<const StreamName*>(handle) : StreamName{.gpu = CurrentGpu(), .id = 0};
}

Clocks& Clocks::Get() {
  static auto* const clocks = new Clocks();
  return *clocks;
}

void* Clocks::Allocate(size_t bytes, const StreamName& home, By by) {
  void* const memory = std::aligned_alloc(kCacheLine, (bytes / kCacheLine + 1) * kCacheLine);
  // Nobody may rely on what is in it.
  std::memset(memory, 0xff, bytes);
  absl::MutexLock lock(&mutex_);
  blocks_[static_cast<char*>(memory)] = {.bytes = bytes, .home = home, .by = by};
  Bytes& used = bytes_[home.gpu];
  used.now += bytes;
  used.most = std::max(used.most, used.now);
  return memory;
}

void Clocks::Free(void* memory) {
  {
    absl::MutexLock lock(&mutex_);
    const auto block = blocks_.find(static_cast<char*>(memory));
    SLACKLINE_CHECK(block != blocks_.end());
    if (block->second.by == By::kStream) CheckFree(block->second);
    bytes_[block->second.home.gpu].now -= block->second.bytes;
    blocks_.erase(block);
  }
  std::free(memory);
}

int Clocks::GpuOf(const void* memory) {
  absl::MutexLock lock(&mutex_);
  const Memory* const block = Find(memory);
  return block != nullptr ? block->home.gpu : -1;
}

void Clocks::Keep(const void* memory, const StreamName& stream) {
  absl::MutexLock lock(&mutex_);
  if (Memory* const block = Find(memory)) block->kept.insert(stream);
}

void Clocks::Do(const StreamName& stream, const Accesses& accesses) {
  absl::MutexLock lock(&mutex_);
  DoLocked(stream, accesses);
}

void Clocks::DoLocked(const StreamName& stream, const Accesses& accesses) {
  const uint64_t time = Tick(stream);
  ++operators_[stream];
  const Stamp now = {accesses.what, stream, time};
  for (const Range& range : accesses.reads) Access(now, range, false, accesses.of_other_gpus);
  for (const Range& range : accesses.writes) Access(now, range, true, accesses.of_other_gpus);
}

StreamName Clocks::NewStream(int gpu) {
  absl::MutexLock lock(&mutex_);
  return {.gpu = gpu, .id = ++last_stream_[gpu]};
}

Clock Clocks::Record(const StreamName& stream) {
  absl::MutexLock lock(&mutex_);
  Tick(stream);
  return clocks_[stream];
}

void Clocks::Await(const Clock& event, const StreamName& stream) {
  absl::MutexLock lock(&mutex_);
  Join(clocks_[stream], event);
}

void Clocks::Wait(const StreamName& stream) {
  absl::MutexLock lock(&mutex_);
  Tick(stream);
  Join(host_clock, clocks_[stream]);
  Deliver(host_clock);
}

void Clocks::WaitFor(const Clock& event) {
  absl::MutexLock lock(&mutex_);
  Join(host_clock, event);
  Deliver(host_clock);
}

void Clocks::WaitForGpu(int gpu) {
  absl::MutexLock lock(&mutex_);
  for (const auto& [stream, clock] : clocks_) {
    if (stream.gpu == gpu) Join(host_clock, clock);
  }
  Deliver(host_clock);
}

void Clocks::HearOfCalls() {
  absl::MutexLock lock(&mutex_);
  Join(host_clock, called_);
}

void Clocks::CallOnHost(const StreamName& stream, const std::function<void()>& function) {
  {
    absl::MutexLock lock(&mutex_);
    Tick(stream);
    Join(called_, clocks_[stream]);
    Deliver(clocks_[stream]);
  }
  function();
}

void Clocks::Pin(const void* memory, size_t bytes) {
  absl::MutexLock lock(&mutex_);
  pinned_[static_cast<const char*>(memory)] = bytes;
}

void Clocks::Unpin(const void* memory) {
  absl::MutexLock lock(&mutex_);
  pinned_.erase(static_cast<const char*>(memory));
}

bool Clocks::IsPinned(const void* memory) {
  absl::MutexLock lock(&mutex_);
  auto after = pinned_.upper_bound(static_cast<const char*>(memory));
  if (after == pinned_.begin()) return false;
  --after;
  return memory < after->first + after->second;
}

void Clocks::CopyToHost(const StreamName& stream, void* host, const void* memory, size_t bytes) {
  absl::MutexLock lock(&mutex_);
  DoLocked(stream, {.what = "copy to the host", .reads = {{memory, bytes}}});
  host_copies_.push_back({.stamp = {"copy to the host", stream, clocks_[stream][stream]},
                          .host = static_cast<char*>(host),
                          .bytes = std::string(static_cast<const char*>(memory), bytes),
                          .to_host = true});
}

void Clocks::CopyFromHost(const StreamName& stream, void* memory, const void* host, size_t bytes) {
  absl::MutexLock lock(&mutex_);
  DoLocked(stream, {.what = "copy from the host", .writes = {{memory, bytes}}});
  std::memcpy(memory, host, bytes);
  host_copies_.push_back({.stamp = {"copy from the host", stream, clocks_[stream][stream]},
                          .host = static_cast<char*>(const_cast<void*>(host)),
                          .bytes = std::string(static_cast<const char*>(host), bytes)});
}

void Clocks::Deliver(const Clock& known) {
  std::vector<HostCopy> left;
  for (HostCopy& copy : host_copies_) {
    if (!Knows(known, copy.stamp.stream, copy.stamp.time)) {
      left.push_back(std::move(copy));
    } else if (copy.to_host) {
      std::memcpy(copy.host, copy.bytes.data(), copy.bytes.size());
    } else if (std::memcmp(copy.host, copy.bytes.data(), copy.bytes.size()) != 0) {
      faults_.insert(absl::StrCat("the host has written memory that ", ToText(copy.stamp.stream), " was copying from"));
    }
  }
  host_copies_ = std::move(left);
}

void Clocks::Fault(const std::string& fault) {
  absl::MutexLock lock(&mutex_);
  faults_.insert(fault);
}

std::vector<std::string> Clocks::TakeFaults() {
  absl::MutexLock lock(&mutex_);
  const std::set<std::string> faults = std::exchange(faults_, {});
  return {faults.begin(), faults.end()};
}

size_t Clocks::copies_under_way() {
  absl::MutexLock lock(&mutex_);
  return host_copies_.size();
}

Bytes Clocks::TakeBytes(int gpu) {
  absl::MutexLock lock(&mutex_);
  return std::exchange(bytes_[gpu], {.now = bytes_[gpu].now, .most = bytes_[gpu].now});
}

size_t Clocks::OperatorsOnDefaultStream(int gpu) {
  absl::MutexLock lock(&mutex_);
  return operators_[{.gpu = gpu, .id = 0}];
}

void Clocks::FailOn(const std::string& what, size_t count) {
  absl::MutexLock lock(&mutex_);
  failing_ = what;
  until_failure_ = count;
}

bool Clocks::Fails(const std::string& what) {
  absl::MutexLock lock(&mutex_);
  return what == failing_ && until_failure_ > 0 && --until_failure_ == 0;
}

uint64_t Clocks::Tick(const StreamName& stream) {
  Clock& clock = clocks_[stream];
  Join(clock, host_clock);
  return ++clock[stream];
}

Clocks::Memory* Clocks::Find(const void* memory) {
  auto after = blocks_.upper_bound(static_cast<char*>(const_cast<void*>(memory)));
  if (after == blocks_.begin()) return nullptr;
  --after;
  return memory <= after->first + after->second.bytes ? &after->second : nullptr;
}

void Clocks::Access(const Stamp& now, const Range& range, bool writes, bool of_other_gpus) {
  Memory* const block = Find(range.begin);
  if (block == nullptr) {
    faults_.insert(absl::StrCat(now.what, " on ", ToText(now.stream), " is given memory of the host"));
    return;
  }
  if (block->home.gpu != now.stream.gpu && !of_other_gpus) {
    faults_.insert(absl::StrCat(now.what, " on ", ToText(now.stream), " is given memory of GPU ", block->home.gpu));
  }
  const char *const begin = static_cast<const char*>(range.begin), *const end = begin + range.bytes;
  for (const auto& [place, other] : block->accesses) {
    if (!(writes || place.writes) || place.begin >= end || begin >= place.end) continue;
    if (Knows(clocks_[now.stream], place.stream, other.time)) continue;
    faults_.insert(absl::StrCat(now.what, writes ? " writes" : " reads", " on ", ToText(now.stream), " what ",
                                other.what, place.writes ? " writes" : " reads", " on ", ToText(place.stream),
                                ", and nothing orders them"));
  }
  block->accesses[{.begin = begin, .end = end, .writes = writes, .stream = now.stream}] = now;
}

void Clocks::CheckFree(const Memory& block) {
  Clock known = clocks_[block.home];
  Join(known, host_clock);
  for (const auto& [place, other] : block.accesses) {
    const StreamName& stream = place.stream;
    if (stream == block.home || block.kept.contains(stream) || Knows(known, stream, other.time)) continue;
    faults_.insert(absl::StrCat("memory of ", ToText(block.home), " is given back while ", other.what, " uses it on ",
                                ToText(stream), ", for which it is not kept"));
  }
}

std::vector<std::string> TakeFaults() { return Clocks::Get().TakeFaults(); }
size_t CopiesUnderWay() { return Clocks::Get().copies_under_way(); }
Bytes TakeBytes(int gpu) { return Clocks::Get().TakeBytes(gpu); }
void Pin(const void* memory, size_t bytes) { Clocks::Get().Pin(memory, bytes); }
size_t OperatorsOnDefaultStream(int gpu) { return Clocks::Get().OperatorsOnDefaultStream(gpu); }
void FailOn(const std::string& what, size_t count) { Clocks::Get().FailOn(what, count); }

}  // namespace slackline::worker::played
