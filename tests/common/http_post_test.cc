#include "common/http/http_post.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace slackline::http_post_test {
namespace {

using ::testing::HasSubstr;

// Takes one request, and gives it this answer.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer) : answer_(std::move(answer)), fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_, 1), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    address_ = absl::StrCat("http://127.0.0.1:", ntohs(address.sin_port), "/v1/traces");
    thread_ = std::thread([this] { Serve(); });
  }
  ~OneAnswer() {
    request();
    ::close(fd_);
  }

  const std::string& address() const { return address_; }
  // Waits for the request.
  const std::string& request() {
    if (thread_.joinable()) thread_.join();
    return request_;
  }

 private:
  void Serve() {
    const int client = ::accept(fd_, nullptr, nullptr);
    char buffer[4096];
    for (ssize_t size = 1; size > 0 && !Whole();) {
      size = ::read(client, buffer, sizeof(buffer));
      if (size > 0) request_.append(buffer, static_cast<size_t>(size));
    }
    EXPECT_EQ(::write(client, answer_.data(), answer_.size()), static_cast<ssize_t>(answer_.size()));
    ::close(client);
  }
  bool Whole() const {
    const size_t head = request_.find("\r\n\r\n"), length = request_.find("Content-Length: ");
    size_t bytes = 0;
    return head != std::string::npos && length != std::string::npos &&
           absl::SimpleAtoi(request_.substr(length + 16, request_.find("\r\n", length) - length - 16), &bytes) &&
           request_.size() >= head + 4 + bytes;
  }

  const std::string answer_;
  const int fd_;
  std::string address_;
  std::string request_;
  std::thread thread_;
};

absl::Status SendTo(const std::string& address, const std::string& document) {
  return HttpPost(address, "application/json", absl::Seconds(20)).Send(document);
}

TEST(HttpPost, SendsTheDocument) {
  const std::string document = R"({"a": 1})";
  OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  const absl::Status sent = SendTo(server.address(), document);
  EXPECT_TRUE(sent.ok()) << sent;
  EXPECT_THAT(server.request(), testing::StartsWith("POST /v1/traces HTTP/1.1\r\n"));
  EXPECT_THAT(server.request(), HasSubstr("\r\nContent-Type: application/json\r\n"));
  EXPECT_THAT(server.request(), testing::EndsWith("\r\n\r\n" + document));
}

TEST(HttpPost, SaysWhatAnotherAttemptMayChange) {
  const auto answer = [](const std::string& code) {
    OneAnswer server("HTTP/1.1 " + code + " X\r\nContent-Length: 4\r\n\r\nwhy\n");
    return SendTo(server.address(), "{}");
  };
  for (const char* code : {"429", "502", "503", "504"}) EXPECT_TRUE(absl::IsUnavailable(answer(code))) << code;
  for (const char* code : {"301", "400", "404", "500"}) {
    const absl::Status refused = answer(code);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(absl::StrCat("found the answer ", code, " (why")));
  }
}

TEST(HttpPost, NobodyWhoListensIsNamed) {
  std::string address;
  {
    OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    address = server.address();
    EXPECT_TRUE(SendTo(address, "{}").ok());
  }
  const absl::Status refused = SendTo(address, "{}");
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(address));
}

}  // namespace
}  // namespace slackline::http_post_test
