#include "common/http/http_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace slackline::http_server_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

int Connect(uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return socket;
}

// Until the other end closes, or has sent `enough`.
std::string ReadAll(int socket, const std::string& enough = "\n\n\n") {
  std::string text;
  char buffer[4096];
  ssize_t size;
  while (text.find(enough) == std::string::npos && (size = ::read(socket, buffer, sizeof(buffer))) > 0) {
    text.append(buffer, static_cast<size_t>(size));
  }
  return text;
}

std::string Fetch(uint16_t port, const std::string& request) {
  const int socket = Connect(port);
  EXPECT_EQ(::write(socket, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  const std::string text = ReadAll(socket);
  ::close(socket);
  return text;
}

std::unique_ptr<HttpServer> Serve(std::map<std::string, HttpServer::Handler> handlers, int threads = 2) {
  HttpServer::Options options;
  options.threads = threads;
  options.handlers = std::move(handlers);
  auto server = HttpServer::Start(options);
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

TEST(HttpServer, AnswersWhatIsThere) {
  const auto server = Serve({{"/hello", [](const HttpRequest& request) {
                                return HttpResponse{.type = "text/html",
                                                    .body = "hello " + request.query + request.header("Accept") + "\n",
                                                    .headers = {{"Cache-Control", "no-store"}}};
                              }}});
  const std::string text = Fetch(server->port(), "GET /hello?x=1 HTTP/1.1\r\nHost: localhost\r\nAccept: b\r\n\r\n");
  EXPECT_THAT(text, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(text, HasSubstr("\r\nContent-Type: text/html\r\n"));
  EXPECT_THAT(text, HasSubstr("\r\nCache-Control: no-store\r\n"));
  EXPECT_THAT(text, HasSubstr("\r\nContent-Length: 11\r\n"));
  EXPECT_THAT(text, HasSubstr("\r\n\r\nhello x=1b\n"));
  const std::string head = Fetch(server->port(), "HEAD /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(head, ::testing::EndsWith("\r\n\r\n"));
}

TEST(HttpServer, OnLoopbackOnlyItsOwnNamesAreServed) {
  const auto server = Serve({{"/healthz", [](const HttpRequest&) { return HttpResponse{.body = "ok\n"}; }}});
  for (const char* host : {"localhost", "localhost:80", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:80"}) {
    const std::string request = std::string("GET /healthz HTTP/1.1\r\nHost: ") + host + "\r\n\r\n";
    EXPECT_THAT(Fetch(server->port(), request), StartsWith("HTTP/1.1 200 ")) << host;
  }
  for (const char* host : {"evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1"}) {
    const std::string request = std::string("GET /healthz HTTP/1.1\r\nHost: ") + host + "\r\n\r\n";
    EXPECT_THAT(Fetch(server->port(), request), StartsWith("HTTP/1.1 403 ")) << host;
  }
}

constexpr char kProbe[] = "GET /healthz HTTP/1.0\r\n\r\n";

HttpResponse Ok(const HttpRequest& /*request*/) { return {.body = "ok\n"}; }

// Connections that are closed in the end.
class Crowd {
 public:
  ~Crowd() {
    for (const int socket : sockets_) ::close(socket);
  }
  int Add(uint16_t port, const std::string& words = "") {
    sockets_.push_back(Connect(port));
    EXPECT_EQ(::write(sockets_.back(), words.data(), words.size()), static_cast<ssize_t>(words.size()));
    return sockets_.back();
  }

 private:
  std::vector<int> sockets_;
};

TEST(HttpServer, SilentClientsHoldNobodyUp) {
  const auto server = Serve({{"/healthz", Ok}}, 1);
  for (const char* words : {"", "GET /healthz HTTP/1.1\r\nHost: lo"}) {
    Crowd silent;
    const absl::Time begin = absl::Now();
    for (int i = 0; i < 300; ++i) {
      silent.Add(server->port(), words);
      if (i % 50 == 49) {
        EXPECT_THAT(Fetch(server->port(), kProbe), StartsWith("HTTP/1.1 200 ")) << i;
      }
    }
    EXPECT_LT(absl::Now() - begin, absl::Seconds(2)) << "each could hold a thread up for 3 s";
  }
}

TEST(HttpServer, ClientsThatTakeNothingHoldNobodyUp) {
  const std::string large(size_t{16} << 20, 'x');
  const auto server =
      Serve({{"/healthz", Ok}, {"/large", [&](const HttpRequest&) { return HttpResponse{.body = large}; }}}, 1);
  Crowd deaf;
  for (int i = 0; i < 8; ++i) deaf.Add(server->port(), "GET /large HTTP/1.0\r\n\r\n");
  const absl::Time begin = absl::Now();
  EXPECT_THAT(Fetch(server->port(), kProbe), StartsWith("HTTP/1.1 200 "));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(2)) << "each could hold a thread up for 3 s";
  EXPECT_THAT(Fetch(server->port(), "GET /large HTTP/1.0\r\n\r\n"), ::testing::SizeIs(::testing::Gt(large.size())));
}

TEST(HttpServer, AClientWithoutARequestLosesItsPlace) {
  const auto server = Serve({{"/healthz", Ok}}, 1);
  Crowd crowd;
  const int first = crowd.Add(server->port());
  for (int i = 0; i < 200; ++i) crowd.Add(server->port());
  const absl::Time begin = absl::Now();
  EXPECT_EQ(ReadAll(first), "");
  EXPECT_LT(absl::Now() - begin, absl::Seconds(2)) << "others took its place";
  Crowd alone;
  EXPECT_EQ(ReadAll(alone.Add(server->port(), "GET /hea")), "") << "in the end nobody needs to take it";
}

TEST(HttpServer, AHeadWithoutEndIsRefused) {
  const auto server = Serve({{"/healthz", Ok}});
  EXPECT_THAT(Fetch(server->port(), "GET /healthz HTTP/1.1\r\nA: " + std::string(17 << 10, 'a')),
              ::testing::AllOf(StartsWith("HTTP/1.1 400 "), HasSubstr("allowed are 16384 bytes")));
}

TEST(HttpServer, ListensOnIPv6) {
  HttpServer::Options options;
  options.address = "[::1]";
  options.handlers["/healthz"] = Ok;
  const auto server = HttpServer::Start(options);
  if (!server.ok()) GTEST_SKIP() << "this machine has no IPv6: " << server.status();
  const int socket = ::socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons((*server)->port());
  address.sin6_addr = in6addr_loopback;
  ASSERT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const std::string request = "GET /healthz HTTP/1.1\r\nHost: [::1]\r\n\r\n";
  EXPECT_EQ(::write(socket, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  EXPECT_THAT(ReadAll(socket), StartsWith("HTTP/1.1 200 "));
  ::close(socket);
}

TEST(HttpServer, RefusesTheRest) {
  const auto server = Serve({{"/healthz", [](const HttpRequest&) { return HttpResponse{.body = "ok\n"}; }}});
  EXPECT_THAT(Fetch(server->port(), "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              ::testing::AllOf(StartsWith("HTTP/1.1 404 "), HasSubstr("there are /healthz")));
  EXPECT_THAT(Fetch(server->port(), "GET /healthz/more HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Fetch(server->port(), "POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"),
              StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Fetch(server->port(), "\x16\x03\x01 garbage\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Fetch(server->port(), "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"), HasSubstr("ok\n"));
}

// A server whose orders answer with their method, path and body. Callers with the header `Known` may send a body.
std::unique_ptr<HttpServer> ServeOrders() {
  HttpServer::Options options;
  options.handlers = {{"/healthz", Ok}};
  options.orders = [](const HttpRequest& request) {
    return HttpResponse{.code = 201, .body = request.method + " " + request.path + " " + request.body};
  };
  options.takes_body = [](const HttpRequest& request) { return !request.header("Known").empty(); };
  auto server = HttpServer::Start(std::move(options));
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

TEST(HttpServer, OrdersHaveBodies) {
  const auto server = ServeOrders();
  const std::string text =
      Fetch(server->port(), "POST /a HTTP/1.1\r\nHost: localhost\r\nKnown: yes\r\nContent-Length: 4\r\n\r\nbodyRest");
  EXPECT_THAT(text, StartsWith("HTTP/1.1 201 Created\r\n"));
  EXPECT_THAT(text, ::testing::EndsWith("\r\n\r\nPOST /a body"));
  EXPECT_THAT(Fetch(server->port(), "DELETE /a HTTP/1.1\r\nKnown: yes\r\n\r\n"),
              ::testing::EndsWith("\r\n\r\nDELETE /a "));
  EXPECT_THAT(Fetch(server->port(), "POST /a HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody"),
              ::testing::EndsWith("\r\n\r\nPOST /a "))
      << "of a caller who is not known";
  EXPECT_THAT(Fetch(server->port(), kProbe), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Fetch(server->port(), "PUT /a HTTP/1.1\r\nKnown: yes\r\n\r\n"),
              ::testing::AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("\r\nAllow: GET, HEAD, POST, DELETE\r\n")));
  EXPECT_THAT(Fetch(server->port(), "POST /a HTTP/1.1\r\nHost: evil.example\r\nKnown: yes\r\n\r\n"),
              StartsWith("HTTP/1.1 403 "));
}

TEST(HttpServer, ABodyMayComeInPartsAndHasALargestSize) {
  const auto server = ServeOrders();
  const std::string body(kHttpBodyBytesMax, 'x');
  const std::string head = "POST /a HTTP/1.1\r\nKnown: yes\r\nContent-Length: ";
  EXPECT_EQ(Fetch(server->port(), head + std::to_string(body.size()) + "\r\n\r\n" + body).size(),
            Fetch(server->port(), head + "0\r\n\r\n").size() + body.size() + 6);
  EXPECT_THAT(Fetch(server->port(), head + std::to_string(body.size() + 1) + "\r\n\r\n"),
              StartsWith("HTTP/1.1 413 Content Too Large\r\n"));
  EXPECT_THAT(Fetch(server->port(), head + "many\r\n\r\n"),
              ::testing::AllOf(StartsWith("HTTP/1.1 400 "), HasSubstr("Content-Length: found 'many'")));
  const int socket = Connect(server->port());
  for (const std::string& part : {head, std::string("6\r\n\r"), std::string("\nabc"), std::string("def")}) {
    EXPECT_EQ(::write(socket, part.data(), part.size()), static_cast<ssize_t>(part.size()));
  }
  EXPECT_THAT(ReadAll(socket), ::testing::EndsWith("POST /a abcdef"));
  ::close(socket);
}

TEST(HttpServer, TakenPortIsRefused) {
  const auto first = Serve({});
  HttpServer::Options options;
  options.port = first->port();
  const auto second = HttpServer::Start(options);
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
}

TEST(HttpServer, StreamsEndWithTheServerAndWithTheClient) {
  absl::Notification sent, ended;
  auto server = Serve({{"/events", [&](const HttpRequest&) {
                          HttpResponse response;
                          response.type = "text/event-stream";
                          response.stream = [&](HttpStream& stream) {
                            while (stream.Send("data: x\n\n")) {
                              if (!sent.HasBeenNotified()) sent.Notify();
                              absl::Notification().WaitForNotificationWithTimeout(absl::Milliseconds(1));
                            }
                            if (!ended.HasBeenNotified()) ended.Notify();
                          };
                          return response;
                        }}});
  const int leaver = Connect(server->port());
  const std::string request = "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";
  ASSERT_GT(::write(leaver, request.data(), request.size()), 0);
  EXPECT_THAT(ReadAll(leaver, "data: x"), HasSubstr("text/event-stream"));
  ::close(leaver);
  EXPECT_TRUE(ended.WaitForNotificationWithTimeout(absl::Seconds(30)));
  const int stayer = Connect(server->port());
  ASSERT_GT(::write(stayer, request.data(), request.size()), 0);
  ReadAll(stayer, "data: x");
  server.reset();
  ReadAll(stayer, "never");
  ::close(stayer);
}

}  // namespace
}  // namespace slackline::http_server_test
