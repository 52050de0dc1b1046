// Events of a trace as spans of OpenTelemetry (OTLP in JSON). Pure.
//
// A trace of OpenTelemetry is what the trainer does at one time, mostly a step, with all that begins meanwhile on other
// rows; python/slackline_trace/otlp.py makes the same of a file. An event is known when it ends, before those that hold
// it. So events wait for the end of the step in which they ended, for at most kHoldMax.
//
// Thread-safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/split_mix.h"
#include "worker/base/trace.h"

namespace slackline::worker {

class OtlpSpans {
 public:
  // Largest number of spans in a message, of spans that wait to be sent, and of events that wait for their step.
  static constexpr size_t kMessageMax = 1000;
  static constexpr size_t kSpansMax = 1 << 15;
  static constexpr size_t kHeldMax = 1 << 15;
  static constexpr absl::Duration kHoldMax = absl::Seconds(10);

  // `seed` makes ids that no other process has.
  OtlpSpans(std::string process, std::string job, uint64_t seed)
      : process_(std::move(process)), job_(std::move(job)), ids_(seed) {}

  // Adds events, whose times are those of SteadyTime. `now` and `wall` are the same moment by SteadyTime and by the
  // wall clock. With `all`, no event waits any longer.
  void Add(const Trace::News& news, absl::Time now, absl::Time wall, bool all);

  // Number of spans in the next message; 0 if there is none.
  size_t next() const;
  // Returns the next message, a TracesData. It stays the next one until Pop().
  std::string Message() const;
  // Removes the spans of the next message: they are `sent`, or dropped.
  void Pop(bool sent);

  uint64_t sent() const { return sent_; }
  // Events that became no span, and spans that were not sent.
  uint64_t dropped() const { return dropped_; }

 private:
  // Span of the trainer that holds the events that begin in it.
  struct Top {
    absl::Time begin;
    absl::Time end;
    std::string trace;
    std::string span;
  };
  // Events of tops before these have none.
  static constexpr size_t kTopsMax = 1024;

  // Takes the events that wait no longer from those that are held, in the order of their begins.
  std::vector<TraceEvent> TakeReady(uint32_t trainer, absl::Time now, bool all);
  std::string NewId(size_t digits);
  const Top* TopAt(absl::Time time) const;

  const std::string process_;
  const std::string job_;
  SplitMix64 ids_;
  std::vector<TraceEvent> held_;
  std::deque<Top> tops_;
  std::deque<std::string> spans_;
  uint64_t sent_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace slackline::worker
