// What streams of played GPUs (gpus.h), and the host, know of each other, and what memory they use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tests/worker/played/gpus.h"

namespace slackline::worker::played {

struct StreamName {
  int gpu = 0;
  int64_t id = 0;  // 0: the default stream
  auto operator<=>(const StreamName&) const = default;
};

// How far each stream was.
using Clock = std::map<StreamName, uint64_t>;

// The calling thread's: its GPU, and on each the stream that work is for.
int& CurrentGpu();
int64_t& CurrentStream(int gpu);
inline StreamName CurrentOn(int gpu) { return {.gpu = gpu, .id = CurrentStream(gpu)}; }

// As a cudaStream_t, where the default stream, of whatever GPU is the current one, is null.
void* HandleOf(const StreamName& stream);
StreamName StreamOf(const void* handle);

struct Range {
  const void* begin = nullptr;
  size_t bytes = 0;
};

// Thread-safety: safe.
class Clocks {
 public:
  static Clocks& Get();

  // Memory of a GPU. `home`: the stream whose later allocations may get it again; what is not allocated by stream is
  // given back when the host has waited for the GPU.
  enum class By { kStream, kGpu };
  void* Allocate(size_t bytes, const StreamName& home, By by = By::kStream);
  void Free(void* memory);
  // -1: none of theirs.
  int GpuOf(const void* memory);
  // It is not given out again before `stream` is through with what it has now.
  void Keep(const void* memory, const StreamName& stream);

  struct Accesses {
    std::string what;
    std::vector<Range> reads = {};
    std::vector<Range> writes = {};
    bool of_other_gpus = false;  // may be
  };
  // What a stream is given.
  void Do(const StreamName& stream, const Accesses& accesses);

  StreamName NewStream(int gpu);
  Clock Record(const StreamName& stream);
  void Await(const Clock& event, const StreamName& stream);
  void Chain(const StreamName& before, const StreamName& after) { Await(Record(before), after); }

  // The host waits.
  void Wait(const StreamName& stream);
  void WaitFor(const Clock& event);
  void WaitForGpu(int gpu);
  // What hosts' functions on streams were called after is known to this thread from now on: somebody has told it.
  void HearOfCalls();
  // `function` is called when the stream comes by, which is now, from a thread of the GPU's driver.
  void CallOnHost(const StreamName& stream, const std::function<void()>& function);

  // Memory of the host that copies need not stop for.
  void Pin(const void* memory, size_t bytes);
  void Unpin(const void* memory);
  bool IsPinned(const void* memory);
  // A copy of pinned memory that the stream is given, as late as it may be: what comes to the host is not there before
  // the host has waited, and what comes from it must be the same until then.
  void CopyToHost(const StreamName& stream, void* host, const void* memory, size_t bytes);
  void CopyFromHost(const StreamName& stream, void* memory, const void* host, size_t bytes);

  void Fault(const std::string& fault);
  std::vector<std::string> TakeFaults();
  size_t copies_under_way();
  Bytes TakeBytes(int gpu);
  size_t OperatorsOnDefaultStream(int gpu);
  void FailOn(const std::string& what, size_t count);
  // Whether it is to fail now.
  bool Fails(const std::string& what);

 private:
  struct Stamp {
    std::string what;
    StreamName stream;
    uint64_t time = 0;
  };
  struct Memory {
    size_t bytes = 0;
    StreamName home = {};
    By by = By::kStream;
    // The last of each stream to the same place.
    struct Place {
      const char* begin = nullptr;
      const char* end = nullptr;
      bool writes = false;
      StreamName stream = {};
      auto operator<=>(const Place&) const = default;
    };
    std::map<Place, Stamp> accesses = {};
    std::set<StreamName> kept = {};
  };
  struct HostCopy {
    Stamp stamp;
    char* host = nullptr;
    std::string bytes;
    bool to_host = false;
  };

  uint64_t Tick(const StreamName& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Memory* Find(const void* memory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DoLocked(const StreamName& stream, const Accesses& accesses) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Access(const Stamp& now, const Range& range, bool writes, bool of_other_gpus)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckFree(const Memory& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Copies of the host's memory that are done where this is known.
  void Deliver(const Clock& known) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::map<char*, Memory> blocks_ ABSL_GUARDED_BY(mutex_);
  std::map<const char*, size_t> pinned_ ABSL_GUARDED_BY(mutex_);
  std::map<StreamName, Clock> clocks_ ABSL_GUARDED_BY(mutex_);
  Clock called_ ABSL_GUARDED_BY(mutex_);
  std::map<StreamName, size_t> operators_ ABSL_GUARDED_BY(mutex_);
  std::map<int, int64_t> last_stream_ ABSL_GUARDED_BY(mutex_);
  std::map<int, Bytes> bytes_ ABSL_GUARDED_BY(mutex_);
  std::vector<HostCopy> host_copies_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> faults_ ABSL_GUARDED_BY(mutex_);
  std::string failing_ ABSL_GUARDED_BY(mutex_);
  size_t until_failure_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace slackline::worker::played
