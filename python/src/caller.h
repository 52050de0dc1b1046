// Runs calls that may wait in a thread of their own, so that Python's signals are heard meanwhile.
#pragma once

#include <Python.h>

#include <functional>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace slackline::python {

// A Python exception is set: to be thrown once the GIL is held.
struct PythonErrorIsSet {};

// Thread-safety: Run() of one thread at a time, which holds the GIL.
// Threads:       one, born in the constructor, joined in the destructor.
class Caller {
 public:
  Caller() : thread_([this] { Loop(); }) {}
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;
  ~Caller() {
    {
      absl::MutexLock lock(&mutex_);
      stop_ = true;
    }
    thread_.join();
  }

  // Runs `call` without the GIL. After a signal whose handler raises, calls `interrupt`, which makes `call` return
  // soon, and throws PythonErrorIsSet.
  template <typename Call>
  std::invoke_result_t<Call> Run(Call call, const std::function<void()>& interrupt) ABSL_LOCKS_EXCLUDED(mutex_) {
    std::optional<std::invoke_result_t<Call>> result;
    const auto task = [&] { result.emplace(call()); };
    Begin(task);
    bool raised = false;
    while (!Await(kSignalsEvery)) {
      if (raised || PyErr_CheckSignals() == 0) continue;
      raised = true;
      interrupt();
    }
    if (raised) throw PythonErrorIsSet();
    return *std::move(result);
  }

 private:
  // How late a signal may be heard.
  static constexpr absl::Duration kSignalsEvery = absl::Milliseconds(50);

  void Begin(std::function<void()> task) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    task_ = std::move(task);
    done_ = false;
  }
  // Without the GIL; whether the task is done.
  bool Await(absl::Duration most) ABSL_LOCKS_EXCLUDED(mutex_) {
    bool done = false;
    Py_BEGIN_ALLOW_THREADS;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&done_), most);
      done = done_;
    }
    Py_END_ALLOW_THREADS;
    return done;
  }
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stop_ || task_ != nullptr; }
  void Loop() ABSL_LOCKS_EXCLUDED(mutex_) {
    while (true) {
      std::function<void()> task;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(this, &Caller::HasWork));
        if (stop_) return;
        task = std::exchange(task_, nullptr);
      }
      task();
      absl::MutexLock lock(&mutex_);
      done_ = true;
    }
  }

  absl::Mutex mutex_;
  std::function<void()> task_ ABSL_GUARDED_BY(mutex_);
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace slackline::python
