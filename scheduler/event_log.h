// What happened, for people: the latest events in memory, all of them once for the run folder.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "common/logging.h"

namespace slackline::scheduler {

// Thread-safety: none.
class EventLog {
 public:
  // Events kept for GetStatus.
  static constexpr size_t kRecentMax = 200;
  // Events kept for Take(); when nobody takes them the oldest are dropped.
  static constexpr size_t kUntakenMax = 10000;

  // Notes it and logs it.
  void Add(std::string event) {
    log::Info(event);
    ++count_;
    untaken_.push_back(event);
    if (untaken_.size() > kUntakenMax) untaken_.pop_front();
    recent_.push_back(std::move(event));
    if (recent_.size() > kRecentMax) recent_.pop_front();
  }

  const std::deque<std::string>& recent() const { return recent_; }
  // Since the beginning.
  uint64_t count() const { return count_; }

  // Those added since the last call.
  std::deque<std::string> Take() { return std::exchange(untaken_, {}); }

 private:
  uint64_t count_ = 0;
  std::deque<std::string> recent_;
  std::deque<std::string> untaken_;
};

}  // namespace slackline::scheduler
