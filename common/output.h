// Standard output or standard error, written so that a reader who has stopped reading holds nobody up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include "absl/base/call_once.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace slackline {

// Texts go out whole and in order. A text that the reader does not take (Ctrl-S, a pager, a log driver that hangs)
// waits in memory, and texts for which there is no room are left out and counted.
//
// Thread-safety: safe.
// Ownership:     borrows the descriptor.
// Threads:       one, from the first text on, which writes and takes no signals. The destructor joins it, except if the
//                reader holds it up for too long: then the process ends without it.
class Output {
 public:
  // What waits for the reader.
  static constexpr size_t kBytesMax = 256 << 10;
  // How long the first text that the reader does not take holds up its caller; those after it do not wait.
  static constexpr absl::Duration kPatience = absl::Milliseconds(100);
  static constexpr absl::Duration kEndMax = absl::Seconds(5);

  // `end_max`: how long the destructor and Flush() wait for the reader.
  explicit Output(int descriptor, absl::Duration end_max = kEndMax);
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output();

  // Returns when `text` is written, in most cases. A reader that is gone is answered by SIGPIPE, as in every program.
  void Write(absl::string_view text);
  // Waits for the reader to take what waits; not at all where it has stopped reading.
  void Flush();

  // The reader has stopped reading.
  bool stuck() const;
  // How many texts were left out since the last call; 0 while there is no room for a line that says so.
  uint64_t TakeLeftOut();
  int descriptor() const { return descriptor_; }

 private:
  class Queue;

  // Starts the thread. Not before there is something to write: it runs on the cores of the thread that makes it.
  void Begin();
  // After a fork the thread is the parent's.
  bool InChild() const;

  const int descriptor_;
  const int process_;
  // Shared with the thread, which may outlive this.
  const std::shared_ptr<Queue> queue_;
  absl::once_flag begun_;
  std::thread thread_;
};

// For the end of main(): `code`. Where stdout could not take all that the command has printed, says so on stderr, and
// returns 1 for 0.
int FinishStdout(int code);

}  // namespace slackline
