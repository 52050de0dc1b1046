// A file descriptor that closes itself.
#pragma once

#include <unistd.h>

#include <memory>
#include <utility>

namespace slackline::shm {

// Thread-safety: that of an int.
// Ownership:     owns the descriptor. A moved-from one is empty.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (valid()) ::close(fd_);
  }

  bool valid() const { return fd_ >= 0; }
  // Returns the descriptor for calls that only borrow it.
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// A shared descriptor. It must stay open while it is sent, although its owner may drop it meanwhile.
using SharedDescriptor = std::shared_ptr<const Descriptor>;

}  // namespace slackline::shm
