// Events of a job, for people: the latest ones are kept in memory, and all of them are handed out once for the run
// folder. Also the names by which events call the members.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/log/logging.h"
#include "common/text/utf8.h"

namespace slackline::scheduler {

// Returns "worker w-2" for the name "w-2", but "worker-2" and not "worker worker-2": many names contain their role.
inline std::string Called(absl::string_view role, absl::string_view name) {
  return absl::StartsWith(name, role) ? std::string(name) : absl::StrCat(role, " ", name);
}

// Returns the duration in milliseconds precision, for example "1.25s".
inline std::string Readable(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1)));
}

// Logs an event. Deaths are warnings, for people who filter by level.
inline void LogEvent(absl::string_view event) {
  if (absl::StartsWith(event, "the job is failed")) return log::Error(event);
  if (absl::ConsumePrefix(&event, "warning: ") || absl::StrContains(event, " is dead: ") ||
      absl::StrContains(event, "no worker is left")) {
    return log::Warning(event);
  }
  log::Info(event);
}

// Audience of an event: people who follow the job, or only the record of it, if people have been told in another way.
enum class Audience { kPeople, kRecord };

// Thread-safety: none.
class EventLog {
 public:
  // Number of events kept for GetStatus.
  static constexpr size_t kRecentMax = 200;
  // Number of events kept for Take(); if nobody takes them, the oldest are dropped.
  static constexpr size_t kUntakenMax = 10000;

  // `after_record`: true to tell people of an event only once Recorded() says that it is in the run folder, so that an
  // event which somebody has seen is not lost with this process.
  explicit EventLog(bool after_record = false) : after_record_(after_record) {}

  // Notes an event and logs it.
  void Add(std::string event, Audience audience = Audience::kPeople) {
    // Peers and scripts supply parts of the text.
    event = OneLine(event);
    LogEvent(event);
    untaken_.push_back(event);
    if (untaken_.size() > kUntakenMax) untaken_.pop_front();
    if (audience == Audience::kRecord) return;
    untold_.push_back(std::move(event));
    if (!after_record_ || untold_.size() > kUntakenMax) Tell();
  }

  // Latest events for people.
  const std::deque<std::string>& recent() const { return recent_; }
  // Number of events for people since the beginning.
  uint64_t count() const { return count_; }

  // Continues the count of an earlier life of the scheduler, which told at most `count` events: readers that compare
  // counts see that there are new events.
  void GoOnFrom(uint64_t count) { count_ += count; }

  // Returns the events added since the last call.
  std::deque<std::string> Take() {
    taken_ = untold_.size();
    return std::exchange(untaken_, {});
  }
  bool waiting() const { return !untaken_.empty(); }
  // Notes that the events of the last Take() are written down, or cannot be.
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
  // Events for people, in the order in which they came; the first `taken_` of them are being written.
  std::deque<std::string> untold_;
  size_t taken_ = 0;
  std::deque<std::string> recent_;
  std::deque<std::string> untaken_;
};

}  // namespace slackline::scheduler
