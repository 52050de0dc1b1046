// Judges which workers stall, and when it is useless to expel them again. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/time/timeouts.h"
#include "scheduler.pb.h"

namespace slackline::scheduler {

// Thread-safety: none.
class StallWatch {
 public:
  explicit StallWatch(const Timeouts& timeouts) : timeouts_(timeouts) {}

  // Returns how long the worker may show no sign of life while it has work: the longest of timeouts.stall_ms, the lease
  // of a task, and 20 of the worker's own median steps.
  absl::Duration Allowed(const wire::WorkerProgress& progress) const;

  // Notes that the worker of this name is expelled, at a time when the job had trained `samples` samples. Returns why
  // the job must end, if the same worker was expelled again and again and nothing was trained in between.
  std::optional<std::string> Expelled(const std::string& worker, uint64_t samples);

  // Looks for a worker that reports that it waits for servers while all others wait for it: the only worker with the
  // smallest clock has nobody to wait for. Call at each tick: with the clocks of all busy workers if each of them
  // reports that it waits and the servers are live, else with none. Returns that worker's index once nothing was
  // trained for WaitMax().
  std::optional<size_t> HoldsUp(absl::Span<const uint64_t> clocks, uint64_t samples, absl::Time now);
  absl::Duration WaitMax() const;

  // Notes that this process stood still for `slept`, which does not count as waiting.
  void Overslept(absl::Duration slept) { waiting_since_ += slept; }

  // Returns why a worker is expelled that showed no sign of life for `idle`, and what to do.
  static std::string Reason(absl::Duration idle, absl::Duration allowed);

 private:
  const Timeouts timeouts_;
  uint64_t samples_ = 0;                     // samples that the job had trained at the last expulsion
  std::map<std::string, uint32_t> in_vain_;  // expulsions since then, by the worker's name
  // Time since which all wait, and number of samples that were trained by then.
  absl::Time waiting_since_ = absl::InfinitePast();
  uint64_t waiting_samples_ = 0;
};

}  // namespace slackline::scheduler
