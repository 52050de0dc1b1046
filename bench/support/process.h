// Processes of a measurement: forked before any gRPC (which does not survive a fork), told what to do over a socket,
// watched from outside, and gone with the program.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace slackline::bench {

// One end of a connection between the program and a child. Messages are plain bytes of a length that both know.
//
// Thread-safety: none.
class Channel {
 public:
  explicit Channel(int descriptor) : descriptor_(descriptor) {}

  // Both return false when the other process is gone, and Receive also after `timeout`.
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
  // Texts of up to 64 KiB.
  bool SendText(const std::string& text) const;
  bool ReceiveText(std::string* text, absl::Duration timeout) const;

 private:
  int descriptor_;
};

// Thread-safety: none.
// Ownership:     the child is killed, and waited for, with this.
class Child {
 public:
  // Runs `body` in a process of its own, which ends with it, and with this program at the latest.
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

// Processor time of a live process and all of its threads, user and system.
double CpuSeconds(pid_t pid);
// The most memory that a live process has had resident so far.
uint64_t PeakResidentBytes(pid_t pid);

// Ends the program with a message and exit code 1 unless `status` is OK. In a child it ends the child.
void ExitOnError(const absl::Status& status);

}  // namespace slackline::bench
