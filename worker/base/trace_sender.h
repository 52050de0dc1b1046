// Sends a trace to a collector of OpenTelemetry while it grows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/time/clock.h"
#include "worker/base/otlp_spans.h"
#include "worker/base/trace.h"

namespace slackline::worker {

// Takes the events of a trace once a second. Whoever records them never waits for the collector: spans that it does not
// take are kept up to OtlpSpans::kSpansMax, and then dropped and counted.
//
// Thread-safety: none, but for the trace.
// Ownership:     borrows the trace, which keeps events for TakeNews().
// Threads:       one, which the destructor joins. It has kEndMax for what is left to send, and one call of `post`.
class TraceSender {
 public:
  static constexpr absl::Duration kEvery = absl::Seconds(1);
  static constexpr absl::Duration kEndMax = absl::Seconds(5);

  // Sends a message to the collector. kUnavailable: worth another attempt.
  using Post = std::function<absl::Status(const std::string& json)>;

  // `process` and `job` are names for the spans' resource.
  TraceSender(Trace& trace, std::string process, std::string job, Post post, absl::Duration every = kEvery);
  TraceSender(const TraceSender&) = delete;
  TraceSender& operator=(const TraceSender&) = delete;
  ~TraceSender();

 private:
  void Run();
  // Sends what is ready; with `all`, also what may still get a parent. Stops at `deadline`.
  void Turn(bool all, absl::Time deadline);

  Trace& trace_;
  const Post post_;
  const absl::Duration every_;
  const SteadyTime time_;
  OtlpSpans spans_;
  bool failing_ = false;
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace slackline::worker
