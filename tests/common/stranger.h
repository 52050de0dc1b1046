// A connection to a port of this machine that never says anything.
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "absl/time/time.h"

namespace slackline {

class Stranger {
 public:
  explicit Stranger(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  Stranger(Stranger&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), connected_(std::exchange(other.connected_, false)) {}
  Stranger& operator=(Stranger&&) = delete;
  ~Stranger() {
    if (socket_ >= 0) ::close(socket_);
  }

  bool connected() const { return connected_; }

  // Returns whether the other side closes the connection within `patience`, whatever it says before.
  bool IsCutOff(absl::Duration patience) const {
    const timeval limit = absl::ToTimeval(patience);
    if (::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0) return false;
    char bytes[256];
    ssize_t read = 0;
    do {
      read = ::recv(socket_, bytes, sizeof(bytes), 0);
    } while (read > 0);
    return read == 0 || errno == ECONNRESET;
  }

 private:
  int socket_;
  bool connected_ = false;
};

}  // namespace slackline
