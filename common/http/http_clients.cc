#include "common/http/http_clients.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/http/http_head.h"

namespace slackline {
namespace {

// While the process has no descriptor left.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);

}  // namespace

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

bool HttpClients::Turn(int stop, int news) {
  const bool accepting = time_.Now() >= accept_from_;
  std::vector<pollfd> waits = {{stop, POLLIN, 0}, {news, POLLIN, 0}, {accepting ? listening_ : -1, POLLIN, 0}};
  for (const auto& client : clients_) {
    waits.push_back(
        {client->socket.get(), static_cast<short>(client->stage == HttpClient::Stage::kWriting ? POLLOUT : POLLIN), 0});
  }
  if (::poll(waits.data(), waits.size(), TimeoutMs()) < 0) return true;  // a signal, or no memory for a moment
  if (waits[0].revents != 0) return false;
  for (size_t i = 0; i < clients_.size(); ++i) {
    if (waits[i + 3].revents != 0) Advance(clients_[i]);
  }
  const absl::Time now = time_.Now();
  std::erase_if(clients_, [&](const std::unique_ptr<HttpClient>& client) {
    return client == nullptr || client->stage == HttpClient::Stage::kGone || client->deadline <= now;
  });
  if (waits[1].revents != 0) TakeAnswered(news);
  if (waits[2].revents != 0) Accept();
  return true;
}

int HttpClients::TimeoutMs() const {
  const absl::Time now = time_.Now();
  absl::Time next = accept_from_ > now ? accept_from_ : absl::InfiniteFuture();
  for (const auto& client : clients_) next = std::min(next, client->deadline);
  if (next == absl::InfiniteFuture()) return -1;
  const int64_t left_ms = absl::ToInt64Milliseconds(absl::Ceil(next - now, absl::Milliseconds(1)));
  return static_cast<int>(std::clamp<int64_t>(left_ms, 0, 60'000));
}

void HttpClients::Accept() {
  // Not for ever: who is here already waits meanwhile.
  for (size_t accepted = 0; accepted < kClientsMax; ++accepted) {
    shm::Descriptor socket(::accept4(listening_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      const bool nobody_waits = WouldBlock() || errno == ECONNABORTED;
      if (!nobody_waits && !DropOldest()) accept_from_ = time_.Now() + kAcceptPause;
      return;
    }
    if (clients_.size() >= kClientsMax) DropOldest();
    clients_.push_back(std::make_unique<HttpClient>());
    clients_.back()->socket = std::move(socket);
    clients_.back()->deadline = time_.Now() + kHttpPatience;
    Advance(clients_.back());  // most requests are there by now
    if (clients_.back() == nullptr || clients_.back()->stage == HttpClient::Stage::kGone) clients_.pop_back();
  }
}

bool HttpClients::DropOldest() {
  if (clients_.empty()) return false;
  const auto silent = std::find_if(clients_.begin(), clients_.end(), [](const std::unique_ptr<HttpClient>& client) {
    return client->stage != HttpClient::Stage::kWriting;
  });
  clients_.erase(silent == clients_.end() ? clients_.begin() : silent);
  return true;
}

void HttpClients::TakeAnswered(int news) {
  eventfd_t ignored;
  static_cast<void>(::eventfd_read(news, &ignored));
  for (std::unique_ptr<HttpClient>& client : desk_.TakeAnswered()) {
    while (clients_.size() >= kClientsMax) DropOldest();
    Write(*client);
    if (client->stage != HttpClient::Stage::kGone) clients_.push_back(std::move(client));
  }
}

void HttpClients::Advance(std::unique_ptr<HttpClient>& client) {
  switch (client->stage) {
    case HttpClient::Stage::kReading:
      return Read(client);
    case HttpClient::Stage::kWriting:
      return Write(*client);
    case HttpClient::Stage::kDraining:
      return Drain(*client);
    case HttpClient::Stage::kGone:
      return;
  }
}

void HttpClients::Read(std::unique_ptr<HttpClient>& client) {
  char buffer[4096];
  const ssize_t size = ::recv(client->socket.get(), buffer, sizeof(buffer), 0);
  if (size < 0 && WouldBlock()) return;
  if (size <= 0) {
    client->stage = HttpClient::Stage::kGone;
    return;
  }
  client->received.append(buffer, static_cast<size_t>(size));
  if (!client->request_bytes && !Measure(*client)) return Write(*client);
  if (!client->request_bytes) return;
  if (client->received.size() < *client->request_bytes) {
    // The body of a caller that is known may come slowly.
    client->deadline = time_.Now() + kHttpPatience;
    return;
  }
  client->received.resize(*client->request_bytes);
  if (desk_.Give(client)) return;
  client->output = HttpText({.code = 503, .body = "too many requests wait; try again\n"});
  Write(*client);
}

bool HttpClients::Measure(HttpClient& client) {
  const std::optional<size_t> bytes = HttpHeadBytes(client.received);
  if (bytes.value_or(client.received.size()) > kHeadBytesMax) {
    client.output =
        HttpText({.code = 400, .body = absl::StrCat("found a longer head; allowed are ", kHeadBytesMax, " bytes\n")});
    return false;
  }
  client.request_bytes = bytes;
  if (!bytes || takes_body_ == nullptr) return true;
  const absl::StatusOr<HttpHead> head = ParseHttpHead(client.received.substr(0, *bytes));
  // The desk refuses a head that cannot be read.
  if (!head.ok() || !takes_body_(*head)) return true;
  const absl::StatusOr<size_t> body = HttpBodyBytes(*head);
  if (!body.ok()) {
    const int code = absl::IsResourceExhausted(body.status()) ? 413 : 400;
    client.output = HttpText({.code = code, .body = absl::StrCat(body.status().message(), "\n")});
    return false;
  }
  client.request_bytes = *bytes + *body;
  // Clients with a long body ask first. If this cannot be sent at once, they do not wait for it for ever.
  if (client.received.size() < *client.request_bytes &&
      absl::EqualsIgnoreCase(head->Header("Expect"), "100-continue")) {
    constexpr absl::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    static_cast<void>(::send(client.socket.get(), kContinue.data(), kContinue.size(), MSG_NOSIGNAL));
  }
  return true;
}

void HttpClients::Write(HttpClient& client) {
  client.stage = HttpClient::Stage::kWriting;
  client.deadline = time_.Now() + kHttpPatience;
  while (client.sent < client.output.size()) {
    const ssize_t size = ::send(client.socket.get(), client.output.data() + client.sent,
                                client.output.size() - client.sent, MSG_NOSIGNAL);
    if (size < 0 && WouldBlock()) return;
    if (size < 0) {
      client.stage = HttpClient::Stage::kGone;
      return;
    }
    client.sent += static_cast<size_t>(size);
  }
  client.output = std::string();
  ::shutdown(client.socket.get(), SHUT_WR);
  client.stage = HttpClient::Stage::kDraining;
}

void HttpClients::Drain(HttpClient& client) {
  char buffer[4096];
  const ssize_t size = ::recv(client.socket.get(), buffer, sizeof(buffer), 0);
  if (size == 0 || (size < 0 && !WouldBlock())) client.stage = HttpClient::Stage::kGone;
}

}  // namespace slackline
