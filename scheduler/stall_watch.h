// Judges which workers stall, and when it leads nowhere to expel them again. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/timeouts.h"
#include "scheduler.pb.h"

namespace slackline::scheduler {

// Thread-safety: none.
class StallWatch {
 public:
  explicit StallWatch(const Timeouts& timeouts) : timeouts_(timeouts) {}

  // How long the worker may show no sign of life while it has work: timeouts.stall_ms, or 20 of its own median steps.
  absl::Duration Allowed(const wire::WorkerProgress& progress) const;

  // Notes that the worker of this name is expelled, when the job had trained so many samples. Returns why the job must
  // end, if the same worker was expelled again and again and nothing was trained in between.
  std::optional<std::string> Expelled(const std::string& worker, uint64_t samples);

  // Looks for a worker that says it waits for servers while all others wait for it: the one with the smallest clock has
  // nobody to wait for. To be called at each tick, with the clocks of all busy workers if each of them says that it
  // waits and the servers are live, else with none. Returns the index of that worker when nothing was trained for
  // WaitMax().
  std::optional<size_t> HoldsUp(absl::Span<const uint64_t> clocks, uint64_t samples, absl::Time now);
  absl::Duration WaitMax() const;

  // The process stood still for so long.
  void Overslept(absl::Duration slept) { waiting_since_ += slept; }

  // Why a worker is expelled that showed no sign of life for `idle`, and what to do.
  static std::string Reason(absl::Duration idle, absl::Duration allowed);

 private:
  const Timeouts timeouts_;
  uint64_t samples_ = 0;                     // of the job, at the last expulsion
  std::map<std::string, uint32_t> in_vain_;  // expulsions since then, by the worker's name
  // Since then all wait, and so many samples were trained.
  absl::Time waiting_since_ = absl::InfinitePast();
  uint64_t waiting_samples_ = 0;
};

}  // namespace slackline::scheduler
