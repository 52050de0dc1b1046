// Sockets without any protocol, to measure what the kernel can do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/support/process.h"

namespace slackline::bench {

// The peer's work in each round: it receives taken_bytes, then sends answered_bytes.
struct RawRound {
  uint64_t taken_bytes = 0;
  uint64_t answered_bytes = 0;
};

// Thread-safety: none.
class RawConnection {
 public:
  // `address` is IPV4:PORT or unix-abstract:NAME.
  //   kUnavailable  no peer listens there
  static absl::StatusOr<std::unique_ptr<RawConnection>> Connect(const std::string& address, const RawRound& round);
  ~RawConnection();
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  // Sends and receives one round, 1 MiB at a time, using the same 1 MiB of memory.
  absl::Status Round();

 private:
  RawConnection(int descriptor, const RawRound& round);

  const int descriptor_;
  const RawRound round_;
  std::vector<char> memory_;
};

// The other side, in its own process. Serves one connection at a time.
class RawPeer {
 public:
  // Start a peer on port 0 of `host`, or on a Unix socket with a unique abstract name, which leaves no file.
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
