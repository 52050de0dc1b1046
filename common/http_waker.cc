#include "common/http_waker.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/time/time.h"

namespace slackline {
namespace {

constexpr absl::Duration kConnectEvery = absl::Milliseconds(5);

void ConnectOnce(const std::string& address, uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return;
  const int socket = ::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket >= 0) {
    // Whether it connects does not matter: the attempt is the message.
    static_cast<void>(::connect(socket, found->ai_addr, found->ai_addrlen));
    ::close(socket);
  }
  ::freeaddrinfo(found);
}

}  // namespace

HttpWaker::HttpWaker(const std::string& address, uint16_t port)
    : thread_([this, address, port] {
        do {
          ConnectOnce(address, port);
        } while (!stopped_.WaitForNotificationWithTimeout(kConnectEvery));
      }) {}

HttpWaker::~HttpWaker() {
  stopped_.Notify();
  thread_.join();
}

}  // namespace slackline
