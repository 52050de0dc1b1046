#include "cli/doctor/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/address.h"

namespace slackline::cli::doctor {
namespace {

// Descriptors of ours never block: poll() waits, with a deadline.
constexpr int kSocketKind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

absl::Status SocketFailed(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", ::strerror(errno)));
}

using FoundAddresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

absl::StatusOr<FoundAddresses> LookUpAddress(std::string host, const std::string& port) {
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return absl::NotFoundError(absl::StrCat("found no address for '", host, "': ", ::gai_strerror(error)));
  }
  return FoundAddresses(found, ::freeaddrinfo);
}

void SendAtOnce(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

absl::StatusOr<Socket> Socket::Listen(const std::string& host) {
  const absl::StatusOr<FoundAddresses> found = LookUpAddress(host, "0");
  if (!found.ok()) return found.status();
  Socket socket(::socket((*found)->ai_family, kSocketKind, 0));
  if (socket.fd_ < 0) return SocketFailed("socket");
  if (::bind(socket.fd_, (*found)->ai_addr, (*found)->ai_addrlen) != 0 || ::listen(socket.fd_, 64) != 0) {
    return SocketFailed(absl::StrCat("cannot listen on ", host));
  }
  return socket;
}

absl::StatusOr<Socket> Socket::Connect(const std::string& address, absl::Time deadline) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("found '", address, "'; allowed is HOST:PORT"));
  }
  const absl::StatusOr<FoundAddresses> found = LookUpAddress(HostOf(address), address.substr(colon + 1));
  if (!found.ok()) return found.status();
  Socket socket(::socket((*found)->ai_family, kSocketKind, 0));
  if (socket.fd_ < 0) return SocketFailed("socket");
  SendAtOnce(socket.fd_);
  if (::connect(socket.fd_, (*found)->ai_addr, (*found)->ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return SocketFailed(absl::StrCat("cannot connect to ", address));
    if (absl::Status there = socket.Await(POLLOUT, deadline); !there.ok()) {
      return absl::Status(there.code(), absl::StrCat("cannot connect to ", address, ": ", there.message()));
    }
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(socket.fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    errno = error;
    if (error != 0) return SocketFailed(absl::StrCat("cannot connect to ", address));
  }
  return socket;
}

Socket::Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

absl::StatusOr<Socket> Socket::Accept(absl::Time deadline) const {
  while (true) {
    if (absl::Status status = Await(POLLIN, deadline); !status.ok()) return status;
    Socket next(::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (next.fd_ >= 0) {
      SendAtOnce(next.fd_);
      return next;
    }
    // Who came may have left again.
    if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) return SocketFailed("accept");
  }
}

std::string Socket::Address() const {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  char text[INET6_ADDRSTRLEN] = "";
  if (::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &four.sin_addr, text, sizeof(text));
    return absl::StrCat(text, ":", ntohs(four.sin_port));
  }
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  ::inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof(text));
  return absl::StrCat("[", text, "]:", ntohs(six.sin6_port));
}

absl::Status Socket::Await(short events, absl::Time deadline) const {
  pollfd wanted = {.fd = fd_, .events = events, .revents = 0};
  const int64_t left_ms = std::clamp<int64_t>(absl::ToInt64Milliseconds(deadline - absl::Now()) + 1, 0, 1 << 30);
  const int ready = absl::Now() > deadline ? 0 : ::poll(&wanted, 1, static_cast<int>(left_ms));
  if (ready > 0 || (ready < 0 && errno == EINTR)) return absl::OkStatus();
  if (ready < 0) return SocketFailed("poll");
  return absl::DeadlineExceededError("the other end did nothing for too long");
}

absl::Status Socket::Send(const char* bytes, size_t size, absl::Time deadline) const {
  while (size > 0) {
    const ssize_t sent = ::send(fd_, bytes, size, MSG_NOSIGNAL);
    if (sent > 0) {
      bytes += sent;
      size -= static_cast<size_t>(sent);
    } else if (errno != EAGAIN && errno != EINTR) {
      return SocketFailed("the connection is broken");
    } else if (absl::Status status = Await(POLLOUT, deadline); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status Socket::Receive(char* bytes, size_t size, absl::Time deadline) const {
  while (size > 0) {
    const ssize_t received = ::recv(fd_, bytes, size, 0);
    if (received == 0) return absl::UnavailableError("the other end has closed the connection");
    if (received > 0) {
      bytes += received;
      size -= static_cast<size_t>(received);
    } else if (errno != EAGAIN && errno != EINTR) {
      return SocketFailed("the connection is broken");
    } else if (absl::Status status = Await(POLLIN, deadline); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace slackline::cli::doctor
