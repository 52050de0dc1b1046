// Vector clocks: what the streams of fake GPUs (gpus.h) and the host know of each other; and the memory that they use.
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

// Position of each stream, in ticks of that stream.
using Clock = std::map<StreamName, uint64_t>;

// Current GPU of the calling thread, and its current stream on each GPU.
int& CurrentGpu();
int64_t& CurrentStream(int gpu);
inline StreamName CurrentOn(int gpu) { return {.gpu = gpu, .id = CurrentStream(gpu)}; }

// Converts a stream to a cudaStream_t, and back. Null is the default stream of whatever GPU is the current one.
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

  // Memory of a GPU. With kStream, later allocations by the stream `home` may get the memory again. With kGpu, memory
  // is given back when the host has waited for the GPU.
  enum class By { kStream, kGpu };
  void* Allocate(size_t bytes, const StreamName& home, By by = By::kStream);
  void Free(void* memory);
  // Returns the GPU that has this memory; -1 if none has.
  int GpuOf(const void* memory);
  // Keeps the memory from being given out again before `stream` has done the work that it has now.
  void Keep(const void* memory, const StreamName& stream);

  struct Accesses {
    std::string what;
    std::vector<Range> reads = {};
    std::vector<Range> writes = {};
    bool of_other_gpus = false;  // memory of other GPUs is allowed
  };
  // Gives work to a stream, and checks its accesses.
  void Do(const StreamName& stream, const Accesses& accesses);

  StreamName NewStream(int gpu);
  Clock Record(const StreamName& stream);
  void Await(const Clock& event, const StreamName& stream);
  void Chain(const StreamName& before, const StreamName& after) { Await(Record(before), after); }

  // Makes the host wait for a stream, an event, or all streams of a GPU.
  void Wait(const StreamName& stream);
  void WaitFor(const Clock& event);
  void WaitForGpu(int gpu);
  // Lets this thread know everything that came before the functions called on the host so far: somebody has told it.
  void HearOfCalls();
  // Calls `function` when the stream reaches it, which is now, as a thread of the GPU's driver.
  void CallOnHost(const StreamName& stream, const std::function<void()>& function);

  // Pinned memory of the host, for which copies need not stop.
  void Pin(const void* memory, size_t bytes);
  void Unpin(const void* memory);
  bool IsPinned(const void* memory);
  // Copies to or from pinned memory as late as the stream may: data for the host is not there before the host has
  // waited, and data from the host must be the same until then.
  void CopyToHost(const StreamName& stream, void* host, const void* memory, size_t bytes);
  void CopyFromHost(const StreamName& stream, void* memory, const void* host, size_t bytes);

  void Fault(const std::string& fault);
  std::vector<std::string> TakeFaults();
  size_t copies_under_way();
  Bytes TakeBytes(int gpu);
  size_t OperatorsOnDefaultStream(int gpu);
  void FailOn(const std::string& what, size_t count);
  // Returns whether this operator is to fail now.
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
    // Place of an access; the last access of each stream to the same place counts.
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
  // Completes the copies to and from the host's memory that are known to be done.
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
