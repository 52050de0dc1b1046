// What happened, for people: the latest events in memory, all of them once for the run folder; and how they call
// the members.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/logging.h"
#include "common/utf8.h"

namespace slackline::scheduler {

// "worker w-2", but not "worker worker-2": many names say themselves what they name.
inline std::string Called(absl::string_view role, absl::string_view name) {
  return absl::StartsWith(name, role) ? std::string(name) : absl::StrCat(role, " ", name);
}

// "1.25s"
inline std::string Readable(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1)));
}

// That somebody is dead is also for those who filter by level.
inline void LogEvent(absl::string_view event) {
  if (absl::StartsWith(event, "the job is failed")) return log::Error(event);
  if (absl::StartsWith(event, "warning: ") || absl::StrContains(event, " is dead: ") ||
      absl::StrContains(event, "no worker is left")) {
    return log::Warning(event);
  }
  log::Info(event);
}

// Whom an event is for: people who follow the job, or only the record of it (they have been told otherwise).
enum class Audience { kPeople, kRecord };

// Thread-safety: none.
class EventLog {
 public:
  // Events kept for GetStatus.
  static constexpr size_t kRecentMax = 200;
  // Events kept for Take(); when nobody takes them the oldest are dropped.
  static constexpr size_t kUntakenMax = 10000;

  // `after_record`: people are told of an event when Recorded() says that it is in the run folder, and not before: what
  // somebody has seen is not lost with this process.
  explicit EventLog(bool after_record = false) : after_record_(after_record) {}

  // Notes it and logs it.
  void Add(std::string event, Audience audience = Audience::kPeople) {
    // It has words of peers and of scripts in it.
    event = OneLine(event);
    LogEvent(event);
    untaken_.push_back(event);
    if (untaken_.size() > kUntakenMax) untaken_.pop_front();
    if (audience == Audience::kRecord) return;
    untold_.push_back(std::move(event));
    if (!after_record_ || untold_.size() > kUntakenMax) Tell();
  }

  // Those for people.
  const std::deque<std::string>& recent() const { return recent_; }
  // Those for people since the beginning.
  uint64_t count() const { return count_; }

  // So many were told in an earlier life of the scheduler, or fewer: whoever counts sees that there are new ones.
  void GoOnFrom(uint64_t count) { count_ += count; }

  // Those added since the last call.
  std::deque<std::string> Take() {
    taken_ = untold_.size();
    return std::exchange(untaken_, {});
  }
  bool waiting() const { return !untaken_.empty(); }
  // Those of the last Take() are written down, or cannot be.
  void Recorded() { Tell(taken_); }

 private:
  void Tell(size_t most = SIZE_MAX) {
    for (; most > 0 && !untold_.empty(); --most) {
      ++count_;
      recent_.push_back(std::move(untold_.front()));
      untold_.pop_front();
      if (recent_.size() > kRecentMax) recent_.pop_front();
    }
    taken_ = 0;
  }

  const bool after_record_;
  uint64_t count_ = 0;
  // For people, in the order in which they came; `taken_` of them from the first on are being written.
  std::deque<std::string> untold_;
  size_t taken_ = 0;
  std::deque<std::string> recent_;
  std::deque<std::string> untaken_;
};

}  // namespace slackline::scheduler
