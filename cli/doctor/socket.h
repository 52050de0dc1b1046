// TCP sockets with a deadline for every wait.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace slackline::cli::doctor {

// End of a TCP connection, or a listening socket.
//
// Thread-safety: none.
// Ownership:     closes its descriptor.
class Socket {
 public:
  // Listens on any free port of `host`, a numeric address.
  static absl::StatusOr<Socket> Listen(const std::string& host);
  // Connects to `address`, HOST:PORT.
  static absl::StatusOr<Socket> Connect(const std::string& address, absl::Time deadline);

  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  // Returns the next connection.
  absl::StatusOr<Socket> Accept(absl::Time deadline) const;
  // Example: "10.0.0.1:40000"
  std::string Address() const;

  // Sends or receives exactly `size` bytes.
  //   kDeadlineExceeded, kUnavailable
  absl::Status Send(const char* bytes, size_t size, absl::Time deadline) const;
  absl::Status Receive(char* bytes, size_t size, absl::Time deadline) const;

 private:
  explicit Socket(int fd) : fd_(fd) {}
  // Waits until the socket can be read from or written to.
  absl::Status Await(short events, absl::Time deadline) const;
  int fd_ = -1;
};

}  // namespace slackline::cli::doctor
