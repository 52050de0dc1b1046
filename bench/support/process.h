// Child processes of a measurement. They are forked before any gRPC (which does not survive a fork), get orders over a
// socket, are measured from outside, and end with the program.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace slackline::bench {

// An end of a connection between the program and a child. Messages are plain bytes whose length both sides know.
//
// Thread-safety: none.
class Channel {
 public:
  explicit Channel(int descriptor) : descriptor_(descriptor) {}

  // Send and Receive return false if the other process is gone. Receive also returns false after `timeout`.
  bool Send(const void* bytes, size_t size) const;
  bool Receive(void* bytes, size_t size, absl::Duration timeout = absl::InfiniteDuration()) const;

  template <typename Message>
  bool Send(const Message& message) const {
    return Send(&message, sizeof(message));
  }
  template <typename Message>
  bool Receive(Message* message, absl::Duration timeout = absl::InfiniteDuration()) const {
    return Receive(message, sizeof(*message), timeout);
  }
  // Send or receive a text of at most 64 KiB.
  bool SendText(const std::string& text) const;
  bool ReceiveText(std::string* text, absl::Duration timeout) const;

 private:
  int descriptor_;
};

// Thread-safety: none.
// Ownership:     the destructor kills the child and waits for it.
class Child {
 public:
  // Runs `body` in a child process. The child ends when `body` returns, and with this program at the latest.
  Child(std::string name, const std::function<void(const Channel&)>& body);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }
  const Channel& channel() const { return channel_; }

 private:
  const std::string name_;
  pid_t pid_ = 0;
  Channel channel_{-1};
};

// Returns the processor time of a live process and all of its threads, user and system.
double CpuSeconds(pid_t pid);
// Returns the peak resident memory of a live process so far.
uint64_t PeakResidentBytes(pid_t pid);

// Ends the program with a message and exit code 1 unless `status` is OK. In a child, ends the child.
void ExitOnError(const absl::Status& status);

}  // namespace slackline::bench
