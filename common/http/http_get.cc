#include "common/http/http_get.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/address.h"
#include "common/time/clock.h"

namespace slackline {
namespace {

constexpr size_t kAnswerMax = size_t{16} << 20;
constexpr char kEndOfHeaders[] = "\r\n\r\n";

// Closes its descriptor, which never blocks.
class HttpSocket {
 public:
  explicit HttpSocket(int fd) : fd_(fd) {}
  HttpSocket(const HttpSocket&) = delete;
  HttpSocket& operator=(const HttpSocket&) = delete;
  ~HttpSocket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  const int fd_;
};

absl::Status HttpFailed(const std::string& address, absl::string_view what) {
  return absl::UnavailableError(absl::StrCat("no answer from ", address, ": ", what));
}

absl::Status AwaitSocket(const HttpSocket& socket, short events, const std::string& address, absl::Time deadline) {
  pollfd one{socket.fd(), events, 0};
  while (true) {
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - SteadyTime().Now());
    const int ready = left_ms <= 0 ? 0 : ::poll(&one, 1, static_cast<int>(std::min<int64_t>(left_ms, 1 << 30)));
    if (ready > 0) return absl::OkStatus();
    if (ready == 0) return absl::DeadlineExceededError(absl::StrCat("no answer from ", address, " in time"));
    if (errno != EINTR) return HttpFailed(address, ::strerror(errno));
  }
}

absl::Status ConnectSocket(const HttpSocket& socket, const addrinfo& to, const std::string& address,
                           absl::Time deadline) {
  if (socket.fd() < 0) return HttpFailed(address, ::strerror(errno));
  if (::connect(socket.fd(), to.ai_addr, to.ai_addrlen) == 0) return absl::OkStatus();
  if (errno != EINPROGRESS) return HttpFailed(address, ::strerror(errno));
  if (absl::Status there = AwaitSocket(socket, POLLOUT, address, deadline); !there.ok()) return there;
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? absl::OkStatus() : HttpFailed(address, ::strerror(error));
}

absl::Status SendRequest(const HttpSocket& socket, const std::string& request, const std::string& address,
                         absl::Time deadline) {
  for (size_t sent = 0; sent < request.size();) {
    const ssize_t size = ::send(socket.fd(), request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (size > 0) {
      sent += static_cast<size_t>(size);
      continue;
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return HttpFailed(address, ::strerror(errno));
    if (absl::Status room = AwaitSocket(socket, POLLOUT, address, deadline); !room.ok()) return room;
  }
  return absl::OkStatus();
}

// Until the other end closes.
absl::StatusOr<std::string> ReceiveAll(const HttpSocket& socket, const std::string& address, absl::Time deadline) {
  std::string answer;
  char buffer[1 << 16];
  while (true) {
    if (absl::Status there = AwaitSocket(socket, POLLIN, address, deadline); !there.ok()) return there;
    const ssize_t size = ::recv(socket.fd(), buffer, sizeof(buffer), 0);
    if (size == 0) return answer;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) continue;
    if (size < 0) return HttpFailed(address, ::strerror(errno));
    answer.append(buffer, static_cast<size_t>(size));
    if (answer.size() > kAnswerMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the answer of ", address, " is longer than ", kAnswerMax, " bytes, the most allowed"));
    }
  }
}

absl::StatusOr<std::string> BodyOf(const std::string& answer, const std::string& address) {
  const size_t end = answer.find(kEndOfHeaders);
  if (!absl::StartsWith(answer, "HTTP/1.") || end == std::string::npos) {
    return HttpFailed(address, "it does not speak HTTP");
  }
  const std::string first = answer.substr(0, answer.find("\r\n"));
  if (first.find(" 200") != first.find(' ')) {
    return absl::FailedPreconditionError(absl::StrCat(address, " answers '", first, "'; allowed is 200"));
  }
  return answer.substr(end + sizeof(kEndOfHeaders) - 1);
}

}  // namespace

absl::StatusOr<std::string> HttpGet(const std::string& address, const std::string& path, absl::Duration timeout) {
  const absl::Time deadline = SteadyTime().Now() + timeout;
  std::string host = HostOf(address);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), address.substr(address.rfind(':') + 1).c_str(), &hints, &list)) {
    return absl::NotFoundError(absl::StrCat("found no address for '", host, "': ", ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> found(list, ::freeaddrinfo);
  absl::Status failed = HttpFailed(address, "it has no address");
  for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
    const HttpSocket socket(::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    failed = ConnectSocket(socket, *to, address, deadline);
    if (!failed.ok()) continue;
    // The old version: its answers come in one piece and end with the connection.
    const std::string request =
        absl::StrCat("GET ", path, " HTTP/1.0\r\nHost: ", address, "\r\nConnection: close\r\n\r\n");
    if (absl::Status sent = SendRequest(socket, request, address, deadline); !sent.ok()) return sent;
    const absl::StatusOr<std::string> answer = ReceiveAll(socket, address, deadline);
    return answer.ok() ? BodyOf(*answer, address) : answer.status();
  }
  return failed;
}

}  // namespace slackline
