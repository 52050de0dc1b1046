// Timeline of what a worker does, for chrome://tracing and Perfetto, in the Trace Event Format of Chrome.
//
// Code that records holds a null pointer if there is no trace, and checks the pointer once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/clock.h"

namespace slackline::worker {

// Name of an event: a text, which must live as long as the process, and a number unless it is negative. For example,
// "push shard" and 3.
struct TraceName {
  const char* text = "";
  int64_t number = -1;
};

struct TraceEvent {
  static constexpr uint32_t kNoRow = ~uint32_t{0};

  TraceName name;
  // Row on which the event is nested; kNoRow for an event that may overlap others.
  uint32_t row = kNoRow;
  absl::Time begin;
  absl::Duration length;

  absl::Time end() const { return begin + length; }
};

// Collects events, and writes them to a file or hands them out while they come.
//
// Thread-safety: safe.
// Memory:        48 bytes for each event, at most `events_max` events for a file, and `news_max` that nobody has taken.
//                Further events are counted, but not kept.
class Trace {
 public:
  static constexpr size_t kEventsMax = 1 << 18;
  static constexpr size_t kNewsMax = 1 << 15;

  explicit Trace(std::string process, size_t events_max = kEventsMax, size_t news_max = 0)
      : process_(std::move(process)), events_max_(events_max), news_max_(news_max) {}

  absl::Time Now() const { return time_.Now(); }
  // Adds a row to the picture and returns its number. Events on one row must be nested, as calls are.
  uint32_t AddRow(std::string name) ABSL_LOCKS_EXCLUDED(mutex_);
  void Add(uint32_t row, TraceName name, absl::Time begin, absl::Time end) ABSL_LOCKS_EXCLUDED(mutex_);
  // Adds an event that may overlap others of its kind; the viewer finds a row for it. Times are of SteadyTime.
  void AddOverlapping(TraceName name, absl::Time begin, absl::Time end) ABSL_LOCKS_EXCLUDED(mutex_);

  // Events since the last call, in the order in which they ended; and how many more there were, which nobody kept.
  struct News {
    std::vector<TraceEvent> events;
    uint64_t dropped = 0;
    // Names of all rows; row 1 has the first.
    std::vector<std::string> rows;
  };
  News TakeNews() ABSL_LOCKS_EXCLUDED(mutex_);

  // Writes the trace in the format that a viewer reads.
  void WriteTo(std::ostream& out) ABSL_LOCKS_EXCLUDED(mutex_);
  // Writes the trace to a file, as WriteTo() does.
  //   kInternal  the file cannot be written
  absl::Status Write(const std::string& path);

 private:
  static void WriteEvent(const TraceEvent& event, size_t id, absl::Time origin, std::ostream& out);
  void Keep(const TraceEvent& event) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string process_;
  const size_t events_max_;
  const size_t news_max_;
  const SteadyTime time_;

  absl::Mutex mutex_;
  std::vector<std::string> rows_ ABSL_GUARDED_BY(mutex_);
  std::vector<TraceEvent> events_ ABSL_GUARDED_BY(mutex_);
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<TraceEvent> news_ ABSL_GUARDED_BY(mutex_);
  uint64_t news_dropped_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Row of a trace to record on, or nowhere if `trace` is null.
struct TraceRow {
  Trace* trace = nullptr;
  uint32_t row = 0;
};

inline TraceRow AddRow(Trace* trace, const std::string& name) {
  return {.trace = trace, .row = trace != nullptr ? trace->AddRow(name) : 0};
}

// Records an event that lasts from the construction of the span until End() or its destruction.
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
  // Ends this event and begins another one.
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

// Returns the text of a name, such as "push shard 3".
std::string TraceText(const TraceName& name);

// Returns the path of the trace file of worker `name`. Replaces `{name}` in the path; without it, the name goes before
// the file extension.
std::string TracePath(const std::string& path, const std::string& name);

}  // namespace slackline::worker
