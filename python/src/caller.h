// Runs calls that may block in a separate thread, so that Python's signals are handled meanwhile.
#pragma once

#include <Python.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/clock.h"

namespace slackline::python {

// Thrown if a Python exception is set: rethrow it once the GIL is held.
struct PythonErrorIsSet {};

// An error that becomes the Python exception of its status code.
struct StatusError {
  absl::Status status;
};

// Runs one call at a time. Meanwhile Python code still runs: signal handlers in the calling thread, and all other
// threads.
//
// Thread-safety: safe; callers hold the GIL.
// Threads:       one, created in the constructor, joined in the destructor.
class CallThread {
 public:
  CallThread() : pid_(::getpid()), thread_([this] { Loop(); }) {}
  CallThread(const CallThread&) = delete;
  CallThread& operator=(const CallThread&) = delete;
  ~CallThread() {
    {
      absl::MutexLock lock(&mutex_);
      stop_ = true;
    }
    thread_.join();
  }

  // Runs `call` without the GIL. After a signal whose handler raises an exception, calls `interrupt`, which makes
  // `call` return soon, and throws PythonErrorIsSet. Throws StatusError while another call runs. `name` is a literal
  // for messages.
  template <typename Call>
  std::invoke_result_t<Call> Run(const char* name, Call call, const std::function<void()>& interrupt)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    std::optional<std::invoke_result_t<Call>> result;
    const uint64_t number = Begin(name, [&] { result.emplace(call()); });
    if (Finish(number, absl::InfiniteDuration(), interrupt)) throw PythonErrorIsSet();
    return *std::move(result);
  }

  // Waits for the running call, if any. Calls `interrupt` after `patience`, or after a signal whose handler raises; in
  // the latter case then throws PythonErrorIsSet.
  void AwaitIdle(absl::Duration patience, const std::function<void()>& interrupt) ABSL_LOCKS_EXCLUDED(mutex_) {
    if (Finish(newest(), patience, interrupt)) throw PythonErrorIsSet();
  }

  // Returns the name of the running call; null if there is none.
  const char* running() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return begun_ == done_ ? nullptr : name_;
  }
  // Throws StatusError while a call runs.
  void CheckIdle(const std::string& name) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    RefuseBeside(name);
  }
  // Throws StatusError in a process that was forked from the process with the thread.
  void CheckProcess() const {
    if (::getpid() == pid_) return;
    throw StatusError{absl::FailedPreconditionError(absl::StrCat("process ", ::getpid(), " was forked from ", pid_,
                                                                 ", whose worker this is: only that may use it"))};
  }

 private:
  // Longest delay before a signal is handled.
  static constexpr absl::Duration kSignalsEvery = absl::Milliseconds(50);

  void RefuseBeside(const std::string& name) const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    if (begun_ == done_) return;
    throw StatusError{absl::FailedPreconditionError(
        absl::StrCat(name, ": ", name_,
                     " of this worker is still running; a signal handler or another thread may call "
                     "worker.leave() meanwhile, and everything else after it"))};
  }
  // Returns the call's number.
  uint64_t Begin(const char* name, std::function<void()> task) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    RefuseBeside(name);
    name_ = name;
    task_ = std::move(task);
    return ++begun_;
  }
  // Waits for a call. Returns whether a signal's handler has raised. Calls `interrupt` after `patience`, and after such
  // a signal.
  bool Finish(uint64_t number, absl::Duration patience, const std::function<void()>& interrupt)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::Time late = time_.Now() + patience;
    bool raised = false, interrupted = false;
    while (!Await(number, kSignalsEvery)) {
      raised = raised || PyErr_CheckSignals() != 0;
      if (::getpid() != pid_) {
        // A handler has forked. This is the child, which has no such thread.
        if (!raised) CheckProcess();
        return true;
      }
      if (interrupted || !(raised || time_.Now() >= late)) continue;
      // A handler may have called worker.leave(), which has already waited for the call.
      interrupted = !Await(number, absl::ZeroDuration());
      if (interrupted) interrupt();
    }
    return raised;
  }
  // Waits at most `most` without the GIL. Returns whether the call is done.
  bool Await(uint64_t number, absl::Duration most) ABSL_LOCKS_EXCLUDED(mutex_) {
    bool done = false;
    Py_BEGIN_ALLOW_THREADS;
    {
      absl::MutexLock lock(&mutex_);
      const auto is_done = [this, number]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return done_ >= number; };
      done = mutex_.AwaitWithTimeout(absl::Condition(&is_done), most);
    }
    Py_END_ALLOW_THREADS;
    return done;
  }
  uint64_t newest() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return begun_;
  }
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stop_ || task_ != nullptr; }
  void Loop() ABSL_LOCKS_EXCLUDED(mutex_) {
    while (true) {
      std::function<void()> task;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(this, &CallThread::HasWork));
        if (stop_) return;
        task = std::exchange(task_, nullptr);
      }
      task();
      absl::MutexLock lock(&mutex_);
      ++done_;
    }
  }

  const pid_t pid_;
  const SteadyTime time_;
  absl::Mutex mutex_;
  std::function<void()> task_ ABSL_GUARDED_BY(mutex_);
  // Name of the newest call.
  const char* name_ ABSL_GUARDED_BY(mutex_) = "";
  // Number of calls that were begun, and of those that are done; at most one call is not done.
  uint64_t begun_ ABSL_GUARDED_BY(mutex_) = 0, done_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace slackline::python
