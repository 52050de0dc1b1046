// What a person sees while a run goes on: a line that renews itself on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/output.h"
#include "scheduler.pb.h"

namespace slackline::cli {

// One line of at most `width` columns, whatever comes first in importance: epoch, bar, samples/s, loss, accuracy,
// slack, time left.
std::string RenderProgress(const wire::GetStatusReply& status, int width);
// The same for a log: no bar, no bound on its length.
std::string RenderPlain(const wire::GetStatusReply& status);
// "1:02:03", "2:03", "0:03".
std::string RenderTime(double seconds);
// 1234567 -> "1,234,567".
std::string RenderCount(double count);

// Writes progress and events to one stream.
//
// Thread-safety: none.
class Progress {
 public:
  // A line that renews itself; lines; or records of our own log.
  enum class Kind { kLive, kLines, kLog };
  // `quiet` leaves out all but Say(). Borrows `out`.
  Progress(Output& out, Kind kind, bool quiet) : out_(out), kind_(kind), quiet_(quiet) {}
  ~Progress() { Clear(); }

  // New events of `status`, then its progress: on a terminal at once, otherwise every few seconds and once for
  // each epoch.
  void Show(const wire::GetStatusReply& status, absl::Time now);
  // Only the new events.
  void ShowEvents(const wire::GetStatusReply& status);
  // A line above the live one.
  void Say(absl::string_view line);
  // Takes the live line away.
  void Clear();

 private:
  int Width() const;

  Output& out_;
  const Kind kind_;
  const bool quiet_;
  bool live_ = false;
  uint64_t events_shown_ = 0;
  uint32_t epoch_shown_ = 0;
  std::string waiting_shown_;
  absl::Time next_plain_ = absl::InfinitePast();
};

}  // namespace slackline::cli
