// Thread-sanitizer builds only: tells TSan of absl::Mutex, which comes from the distribution without instrumentation,
// so that TSan would see no order between the threads that it joins and report every guarded member.
//
// Interposes the functions that the program and Abseil call and forwards to Abseil's own.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);

namespace {

template <typename Function>
Function Next(const char* symbol) {
  void* found = dlsym(RTLD_NEXT, symbol);
  if (found == nullptr) {
    std::fprintf(stderr, "tsan_absl_mutex: Abseil has no %s\n", symbol);
    std::abort();
  }
  return reinterpret_cast<Function>(found);
}

#define NEXT(type, symbol) static const auto next = Next<type>(#symbol)

// Waiters' conditions are evaluated by whoever unlocks, still under the lock but after our release.
struct IgnoreReads {
  IgnoreReads() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~IgnoreReads() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
};

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  NEXT(void (*)(Mutex*), _ZN4absl7debian35Mutex4LockEv);
  next(this);
  __tsan_acquire(this);
}

void Mutex::Unlock() {
  NEXT(void (*)(Mutex*), _ZN4absl7debian35Mutex6UnlockEv);
  __tsan_release(this);
  IgnoreReads ignore;
  next(this);
}

void Mutex::Await(const Condition& condition) {
  NEXT(void (*)(Mutex*, const Condition&), _ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE);
  __tsan_release(this);
  {
    IgnoreReads ignore;
    next(this, condition);
  }
  __tsan_acquire(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, absl::Duration timeout) {
  NEXT(bool (*)(Mutex*, const Condition&, absl::Duration),
       _ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE);
  __tsan_release(this);
  bool result;
  {
    IgnoreReads ignore;
    result = next(this, condition, timeout);
  }
  __tsan_acquire(this);
  return result;
}

bool Mutex::AwaitWithDeadline(const Condition& condition, absl::Time deadline) {
  NEXT(bool (*)(Mutex*, const Condition&, absl::Time),
       _ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE);
  __tsan_release(this);
  bool result;
  {
    IgnoreReads ignore;
    result = next(this, condition, deadline);
  }
  __tsan_acquire(this);
  return result;
}

bool CondVar::WaitWithTimeout(Mutex* mutex, absl::Duration timeout) {
  NEXT(bool (*)(CondVar*, Mutex*, absl::Duration),
       _ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE);
  __tsan_release(mutex);
  const bool result = next(this, mutex, timeout);
  __tsan_acquire(mutex);
  return result;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, absl::Time deadline) {
  NEXT(bool (*)(CondVar*, Mutex*, absl::Time), _ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE);
  __tsan_release(mutex);
  const bool result = next(this, mutex, deadline);
  __tsan_acquire(mutex);
  return result;
}

void CondVar::Wait(Mutex* mutex) {
  NEXT(void (*)(CondVar*, Mutex*), _ZN4absl7debian37CondVar4WaitEPNS0_5MutexE);
  __tsan_release(mutex);
  next(this, mutex);
  __tsan_acquire(mutex);
}

ABSL_NAMESPACE_END
}  // namespace absl
