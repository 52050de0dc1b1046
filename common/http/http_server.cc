#include "common/http/http_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/address.h"
#include "common/base/check.h"
#include "common/http/http_clients.h"
#include "common/http/http_head.h"
#include "common/shm/descriptor.h"
#include "common/time/clock.h"

namespace slackline {
namespace {

using shm::Descriptor;

// host:port for messages; IPv6 addresses go into brackets.
std::string Endpoint(const std::string& address, uint16_t port) {
  const bool bare_ipv6 = absl::StrContains(address, ':') && !absl::StartsWith(address, "[");
  return bare_ipv6 ? absl::StrCat("[", address, "]:", port) : absl::StrCat(address, ":", port);
}

// Whether a request meant this server, if it listens on loopback. A page of somebody else's in the user's browser may
// have a name that it has resolve to 127.0.0.1 (DNS rebinding), and would read everything.
bool MayCallUs(const std::string& listens_on, const std::string& host) {
  if (host.empty() || !IsLoopback(listens_on)) return true;
  const size_t colon = host.rfind(':');
  const bool port = colon != std::string::npos && host.find(']', colon) == std::string::npos;
  return IsLoopback(port ? host.substr(0, colon) : host);
}

// Waits for the client on a thread of its own.
class Connection : public HttpStream {
 public:
  Connection(int socket, int stop) : socket_(socket), stop_(stop) {}

  bool Send(const std::string& piece) override {
    absl::string_view left = piece;
    absl::Time deadline = time_.Now() + kHttpPatience;
    while (!left.empty()) {
      const ssize_t size = ::send(socket_, left.data(), left.size(), MSG_NOSIGNAL);
      if (size < 0 && !WouldBlock()) return false;
      if (size > 0) {
        left.remove_prefix(static_cast<size_t>(size));
        deadline = time_.Now() + kHttpPatience;
      }
      if (!left.empty() && !AwaitRoom(deadline)) return false;
    }
    pollfd stopped = {stop_, POLLIN, 0};
    return ::poll(&stopped, 1, 0) <= 0;
  }

 private:
  bool AwaitRoom(absl::Time deadline) const {
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - time_.Now());
    pollfd waits[] = {{socket_, POLLOUT, 0}, {stop_, POLLIN, 0}};
    const int ready = left_ms <= 0 ? 0 : ::poll(waits, 2, static_cast<int>(left_ms));
    return (ready < 0 && errno == EINTR) || (ready > 0 && waits[1].revents == 0);
  }

  const int socket_;
  const int stop_;
  const SteadyTime time_;
};

absl::Status CannotServe(const std::string& endpoint, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("cannot serve HTTP on ", endpoint, ": ", why));
}

absl::StatusOr<Descriptor> Listen(std::string address, uint16_t port) {
  const std::string endpoint = Endpoint(address, port);
  if (address.size() > 2 && address.front() == '[') address = address.substr(1, address.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list)) {
    return CannotServe(endpoint, ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(list, ::freeaddrinfo);
  const addrinfo* found = list;
  // A name such as localhost has both; what others are told is the one of IPv4.
  while (found->ai_next != nullptr && found->ai_family != AF_INET) found = found->ai_next;
  Descriptor socket(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  // Connections of a process that has just ended do not keep the port.
  if (!socket.valid() || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(socket.get(), SOMAXCONN) != 0) {
    return CannotServe(endpoint, ::strerror(errno));
  }
  return socket;
}

// 0 if it has none.
uint16_t PortOf(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

// Whether a request is an order, which the server takes.
bool IsOrder(const HttpServer::Options& options, const HttpHead& head) {
  return options.orders != nullptr && (head.method == "POST" || head.method == "DELETE");
}

// The request lives as long as its head.
HttpRequest RequestOf(const HttpHead& head) {
  return {.method = head.method, .path = head.path, .query = head.query, .header = [&head](const std::string& name) {
            return head.Header(name);
          }};
}

HttpResponse Answer(const HttpServer::Options& options, const HttpHead& head, std::string body) {
  const auto handler = options.handlers.find(head.path);
  if (!MayCallUs(options.address, head.Header("Host"))) {
    return {.code = 403, .body = "this process listens on loopback; allowed are the hosts localhost and 127.0.0.1\n"};
  }
  HttpRequest request = RequestOf(head);
  if (IsOrder(options, head)) {
    request.body = std::move(body);
    return options.orders(request);
  }
  if (head.method != "GET" && head.method != "HEAD") {
    const std::string allowed = options.orders == nullptr ? "GET, HEAD" : "GET, HEAD, POST, DELETE";
    return {.code = 405,
            .body = absl::StrCat("found ", head.method, "; allowed are ", allowed, "\n"),
            .headers = {{"Allow", allowed}}};
  }
  if (handler == options.handlers.end() && options.otherwise == nullptr) {
    HttpResponse response = {.code = 404, .body = "found no such page; there are"};
    for (const auto& [path, unused] : options.handlers) absl::StrAppend(&response.body, " ", path);
    response.body += "\n";
    return response;
  }
  return handler == options.handlers.end() ? options.otherwise(request) : handler->second(request);
}

// What the client gets; a stream is sent at once.
void Respond(const HttpServer::Options& options, HttpClient& client, int stop) {
  const size_t head_bytes = HttpHeadBytes(client.received).value_or(0);
  const absl::StatusOr<HttpHead> head = ParseHttpHead(client.received.substr(0, head_bytes));
  if (!head.ok()) {
    client.output = HttpText({.code = 400, .body = absl::StrCat(head.status().message(), "\n")});
    return;
  }
  const HttpResponse response = Answer(options, *head, client.received.substr(head_bytes));
  const bool head_only = head->method == "HEAD";
  if (response.stream == nullptr) {
    client.output = HttpText(response, head_only);
    return;
  }
  Connection stream(client.socket.get(), stop);
  if (stream.Send(HttpHeadText(response, response.stream_bytes)) && !head_only) response.stream(stream);
}

}  // namespace

struct HttpServer::Impl {
  struct Sockets {
    Descriptor listening;
    // Readable once clients have their answers, ...
    Descriptor news;
    // ... and from the end of the server on.
    Descriptor stop;
  };

  Impl(const Options& options, Sockets sockets) : options(options), sockets(std::move(sockets)) {
    threads.emplace_back([this] {
      std::function<bool(const HttpHead&)> takes_body;
      if (this->options.takes_body != nullptr) {
        takes_body = [this](const HttpHead& head) {
          return IsOrder(this->options, head) && this->options.takes_body(RequestOf(head));
        };
      }
      HttpClients clients(this->sockets.listening.get(), desk, takes_body);
      while (clients.Turn(this->sockets.stop.get(), this->sockets.news.get())) {
      }
    });
    for (int i = 0; i < options.threads; ++i) threads.emplace_back([this] { Work(); });
  }
  ~Impl() {
    SLACKLINE_CHECK(::eventfd_write(sockets.stop.get(), 1) == 0);
    desk.Close();
    for (std::thread& thread : threads) thread.join();
  }

  void Work() {
    while (std::unique_ptr<HttpClient> client = desk.Take()) {
      Respond(options, *client, sockets.stop.get());
      desk.GiveBack(std::move(client));
      SLACKLINE_CHECK(::eventfd_write(sockets.news.get(), 1) == 0);
    }
  }

  const Options& options;
  const Sockets sockets;
  HttpDesk desk;
  std::vector<std::thread> threads;
};

HttpServer::HttpServer(Options options) : options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(Options options) {
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(options)));
  const std::string& address = server->options_.address;
  absl::StatusOr<Descriptor> listening = Listen(address, server->options_.port);
  if (!listening.ok()) return listening.status();
  server->port_ = PortOf(*listening);
  Impl::Sockets sockets = {*std::move(listening), Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
                           Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))};
  if (server->port_ == 0 || !sockets.news.valid() || !sockets.stop.valid()) {
    return CannotServe(Endpoint(address, server->options_.port), ::strerror(errno));
  }
  server->impl_ = std::make_unique<Impl>(server->options_, std::move(sockets));
  return server;
}

HttpServer::~HttpServer() = default;

}  // namespace slackline
