// Standard output or standard error, written so that a reader who has stopped reading blocks no caller for long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include "absl/base/call_once.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace slackline {

// Writes texts whole and in order. A text that the reader does not take (Ctrl-S, a pager, a log driver that hangs)
// waits in memory. Texts that do not fit there are dropped and counted.
//
// Thread-safety: safe.
// Ownership:     borrows the descriptor.
// Threads:       one, started by the first text. It writes the texts, and blocks all signals. The destructor joins it,
//                unless the reader blocks it for too long: then the process ends without it.
class Output {
 public:
  // Largest number of bytes that wait for the reader.
  static constexpr size_t kBytesMax = 256 << 10;
  // Time for which the first text that the reader does not take blocks its caller. Later texts do not wait.
  static constexpr absl::Duration kPatience = absl::Milliseconds(100);
  static constexpr absl::Duration kEndMax = absl::Seconds(5);

  // `end_max` is the time for which the destructor and Flush() wait for the reader.
  explicit Output(int descriptor, absl::Duration end_max = kEndMax);
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output();

  // Writes `text`, and in most cases returns when it is written. If the reader is gone, the process gets SIGPIPE, as in
  // every program.
  void Write(absl::string_view text);
  // Waits until the reader has taken all waiting texts. Does not wait if the reader has stopped reading.
  void Flush();

  // Returns whether the reader has stopped reading.
  bool stuck() const;
  // Returns the number of texts dropped since the last call; 0 while there is no room for a line that says so.
  uint64_t TakeLeftOut();
  int descriptor() const { return descriptor_; }

 private:
  class Queue;

  // Starts the thread. Called only when there is text to write, since the thread runs on the cores of the thread that
  // creates it.
  void Begin();
  // Returns whether this process is a forked child. The thread belongs to the parent.
  bool InChild() const;

  const int descriptor_;
  const int process_;
  // Queue shared with the thread, which may outlive this object.
  const std::shared_ptr<Queue> queue_;
  absl::once_flag begun_;
  std::thread thread_;
};

// Returns the exit code for the end of main(): `code`. If stdout could not take all that the command has printed, says
// so on stderr, and returns 1 in place of 0.
int FinishStdout(int code);

}  // namespace slackline
