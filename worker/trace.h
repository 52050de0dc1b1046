// A timeline of what a worker does, for chrome://tracing and Perfetto: Chrome's Trace Event Format.
//
// Where there is none, whoever would record holds a null pointer, and asks it once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace slackline::worker {

// One thing that was done. Its name is a text, which must live as long as the process, and a number if it is not
// negative: "push shard" and 3.
struct TraceName {
  const char* text = "";
  int64_t number = -1;
};

// Thread-safety: safe.
// Memory:        48 bytes an event, of at most kEventsMax; later ones are counted, not kept.
class Trace {
 public:
  static constexpr size_t kEventsMax = 1 << 18;

  explicit Trace(std::string process, size_t events_max = kEventsMax)
      : process_(std::move(process)), events_max_(events_max) {}

  absl::Time Now() const { return time_.Now(); }
  // A line of the picture. What is on one must be nested, as calls are.
  uint32_t AddRow(std::string name) ABSL_LOCKS_EXCLUDED(mutex_);
  void Add(uint32_t row, TraceName name, absl::Time begin, absl::Time end) ABSL_LOCKS_EXCLUDED(mutex_);
  // What goes on beside others of its kind, on a line that the viewer finds. Its times are of SteadyTime.
  void AddOverlapping(TraceName name, absl::Time begin, absl::Time end) ABSL_LOCKS_EXCLUDED(mutex_);

  // As a viewer reads it.
  void WriteTo(std::ostream& out) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same to a file.
  //   kInternal  it cannot be written
  absl::Status Write(const std::string& path);

 private:
  static constexpr uint32_t kNoRow = ~uint32_t{0};
  struct Event {
    TraceName name;
    uint32_t row;
    absl::Time begin;
    absl::Duration length;
  };

  static void WriteEvent(const Event& event, size_t id, absl::Time origin, std::ostream& out);
  void Keep(const Event& event) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string process_;
  const size_t events_max_;
  const SteadyTime time_;

  absl::Mutex mutex_;
  std::vector<std::string> rows_ ABSL_GUARDED_BY(mutex_);
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Where somebody records: a row of a trace, or nowhere.
struct TraceRow {
  Trace* trace = nullptr;
  uint32_t row = 0;
};

inline TraceRow AddRow(Trace* trace, const std::string& name) {
  return {.trace = trace, .row = trace != nullptr ? trace->AddRow(name) : 0};
}

// From its birth to its end.
class TraceSpan {
 public:
  TraceSpan(const TraceRow& row, TraceName name)
      : row_(row), name_(name), begin_(row.trace != nullptr ? row.trace->Now() : absl::Time()) {}
  ~TraceSpan() { End(); }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  void End() {
    if (row_.trace != nullptr) row_.trace->Add(row_.row, name_, begin_, row_.trace->Now());
    row_.trace = nullptr;
  }
  // The span ends, and another one begins.
  void Next(TraceName name) {
    if (row_.trace == nullptr) return;
    const absl::Time now = row_.trace->Now();
    row_.trace->Add(row_.row, name_, begin_, now);
    name_ = name;
    begin_ = now;
  }

 private:
  TraceRow row_;
  TraceName name_;
  absl::Time begin_;
};

// The file of worker `name`: `{name}` in the path is its name; where that is missing, the name goes before the ending.
std::string TracePath(const std::string& path, const std::string& name);

}  // namespace slackline::worker
