#include "common/process/thread_cores.h"

#include <sched.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/process/core_wish.h"

namespace slackline {
namespace {

// More than a kernel is built for: it refuses sets that are smaller than its own.
constexpr int kCoresMax = 8192;

struct FreeSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, FreeSet>;

}  // namespace

std::vector<uint32_t> ThreadCores() {
  const CpuSet set(CPU_ALLOC(kCoresMax));
  const size_t bytes = CPU_ALLOC_SIZE(kCoresMax);
  std::vector<uint32_t> cores;
  if (set == nullptr || ::sched_getaffinity(0, bytes, set.get()) != 0) return cores;
  for (int core = 0; core < kCoresMax; ++core) {
    if (CPU_ISSET_S(core, bytes, set.get())) cores.push_back(static_cast<uint32_t>(core));
  }
  return cores;
}

absl::Status BindThread(absl::Span<const uint32_t> cores) {
  if (cores.empty()) return absl::OkStatus();
  const CpuSet set(CPU_ALLOC(kCoresMax));
  const size_t bytes = CPU_ALLOC_SIZE(kCoresMax);
  if (set == nullptr) return absl::ResourceExhaustedError("no memory for a set of cores");
  CPU_ZERO_S(bytes, set.get());
  for (const uint32_t core : cores) {
    if (core < kCoresMax) CPU_SET_S(core, bytes, set.get());
  }
  if (::sched_setaffinity(0, bytes, set.get()) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("a thread cannot be bound to cores ", CoresText(cores), ": ", std::strerror(errno)));
}

}  // namespace slackline
