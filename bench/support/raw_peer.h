// Sockets without any protocol: what the kernel gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/support/process.h"

namespace slackline::bench {

// What the other side does, again and again: takes so many bytes, then answers with so many.
struct RawRound {
  uint64_t taken_bytes = 0;
  uint64_t answered_bytes = 0;
};

// Thread-safety: none.
class RawConnection {
 public:
  // `address` is IPV4:PORT or unix-abstract:NAME.
  //   kUnavailable  nobody listens there
  static absl::StatusOr<std::unique_ptr<RawConnection>> Connect(const std::string& address, const RawRound& round);
  ~RawConnection();
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  // Sends and receives one round, 1 MiB at a time, from and to the same 1 MiB of memory.
  absl::Status Round();

 private:
  RawConnection(int descriptor, const RawRound& round);

  const int descriptor_;
  const RawRound round_;
  std::vector<char> memory_;
};

// The other side, in a process of its own; one connection at a time.
class RawPeer {
 public:
  // Listens on `host`, port 0; or on a Unix socket with a name of its own, which leaves no file.
  static std::unique_ptr<RawPeer> StartTcp(const std::string& host);
  static std::unique_ptr<RawPeer> StartUnix();

  const std::string& address() const { return address_; }
  pid_t pid() const { return child_->pid(); }

 private:
  RawPeer() = default;
  static std::unique_ptr<RawPeer> Start(int listener, const std::string& address);

  std::string address_;
  std::unique_ptr<Child> child_;
};

}  // namespace slackline::bench
