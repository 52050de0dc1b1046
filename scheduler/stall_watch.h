// Judges which workers stall, and when it leads nowhere to expel them again. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
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

  // Why a worker is expelled that showed no sign of life for `idle`, and what to do.
  static std::string Reason(absl::Duration idle, absl::Duration allowed);

 private:
  const Timeouts timeouts_;
  uint64_t samples_ = 0;                     // of the job, at the last expulsion
  std::map<std::string, uint32_t> in_vain_;  // expulsions since then, by the worker's name
};

}  // namespace slackline::scheduler
