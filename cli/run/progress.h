// Progress of a run as people see it: a live line on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/log/output.h"
#include "scheduler.pb.h"

namespace slackline::cli {

// Renders one line of at most `width` columns: epoch, bar, samples/s, loss, accuracy, slack, time left. If room is
// short, the last figures are left out; the bar takes the room that remains.
std::string RenderProgress(const wire::GetStatusReply& status, int width);
// Renders the progress for a log: without a bar, and of any length.
std::string RenderPlain(const wire::GetStatusReply& status);
// Examples: "1:02:03", "2:03", "0:03".
std::string RenderTime(double seconds);
// Example: 1234567 -> "1,234,567".
std::string RenderCount(double count);

// Writes progress and events to one stream.
//
// Thread-safety: none.
class ProgressDisplay {
 public:
  // Form of the output: a live line that is redrawn, plain lines, or records of our own log.
  enum class Kind { kLive, kLines, kLog };
  // `quiet` leaves out everything except Say(). Borrows `out`.
  ProgressDisplay(Output& out, Kind kind, bool quiet) : out_(out), kind_(kind), quiet_(quiet) {}
  ~ProgressDisplay() { Clear(); }

  // Writes the new events of `status`, then its progress: on a terminal at once, otherwise every few seconds and, if
  // the job has at most 50 epochs, at each new epoch. While the job starts, also when the reason for waiting changes.
  void Show(const wire::GetStatusReply& status, absl::Time now);
  // Writes only the new events.
  void ShowEvents(const wire::GetStatusReply& status);
  // Writes a line above the live line.
  void Say(absl::string_view line);
  // Removes the live line.
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
