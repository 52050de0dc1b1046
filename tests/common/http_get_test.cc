#include "common/http/http_get.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/strings/str_cat.h"
#include "common/http/http_server.h"

namespace slackline::http_get_test {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<HttpServer> Serve(const std::string& body) {
  HttpServer::Options options;
  options.handlers["/here"] = [body](const HttpRequest&) { return HttpResponse{.body = body}; };
  auto server = HttpServer::Start(options);
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

std::string AddressOf(const HttpServer& server) { return absl::StrCat("127.0.0.1:", server.port()); }

// A socket that is listened on; nobody takes who comes.
class Silent {
 public:
  Silent() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_, 4), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~Silent() { ::close(fd_); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  const int fd_;
  uint16_t port_ = 0;
};

TEST(HttpGet, BringsTheWholeBody) {
  const std::string body(3 << 20, 'x');
  const auto server = Serve(body + "\r\n\r\nend");
  const absl::StatusOr<std::string> got = HttpGet(AddressOf(*server), "/here", absl::Seconds(30));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->size(), body.size() + 7);
  EXPECT_TRUE(*got == body + "\r\n\r\nend");
}

TEST(HttpGet, AnAnswerWithoutAnEndIsNotTaken) {
  HttpServer::Options options;
  options.handlers["/here"] = [](const HttpRequest&) {
    HttpResponse response;
    response.stream = [](HttpStream& stream) {
      while (stream.Send(std::string(1 << 20, 'x'))) {
      }
    };
    return response;
  };
  const auto server = HttpServer::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const absl::Status status = HttpGet(AddressOf(**server), "/here", absl::Seconds(60)).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

TEST(HttpGet, OtherAnswersAreNamed) {
  const auto server = Serve("body");
  const absl::Status status = HttpGet(AddressOf(*server), "/there", absl::Seconds(30)).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("404"));
}

TEST(HttpGet, WhereNobodyListensThereIsNoAnswer) {
  std::string address;
  {
    const Silent was;
    address = was.address();
  }
  EXPECT_TRUE(absl::IsUnavailable(HttpGet(address, "/", absl::Seconds(30)).status()));
}

TEST(HttpGet, SilenceEndsAtTheDeadline) {
  const Silent silent;
  const absl::Status status = HttpGet(silent.address(), "/", absl::Milliseconds(50)).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr(silent.address()));
}

}  // namespace
}  // namespace slackline::http_get_test
