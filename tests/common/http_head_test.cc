#include "common/http/http_head.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slackline::http_head_test {
namespace {

using ::testing::HasSubstr;

TEST(HttpHead, SaysWhatIsAskedFor) {
  const std::string text = "GET /a%20b/c?x=1&y=%20 HTTP/1.1\r\nHost: here\r\nRANGE:bytes=7- \r\n\r\n";
  EXPECT_EQ(HttpHeadBytes(text + "more"), text.size());
  const auto head = ParseHttpHead(text);
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->method, "GET");
  EXPECT_EQ(head->path, "/a b/c");
  EXPECT_EQ(head->query, "x=1&y=%20");
  EXPECT_EQ(head->Header("host"), "here");
  EXPECT_EQ(head->Header("Range"), "bytes=7-");
  EXPECT_EQ(head->Header("Accept"), "");
}

TEST(HttpHead, EndsWithAnEmptyLine) {
  const std::string text = "GET / HTTP/1.0\r\n\r\n";
  for (size_t bytes = 0; bytes < text.size(); ++bytes) EXPECT_EQ(HttpHeadBytes(text.substr(0, bytes)), std::nullopt);
  EXPECT_EQ(HttpHeadBytes(text), text.size());
}

TEST(HttpHead, RefusesWhatIsNone) {
  const struct {
    std::string text;
    const char* why;
  } kCases[] = {
      {"", "allowed is one that ends with an empty line"},
      {"GET / HTTP/1.1\r\n", "allowed is one that ends with an empty line"},
      {"\r\n\r\n", "allowed is METHOD /PATH HTTP/1.1"},
      {"GET /\r\n\r\n", "allowed is METHOD /PATH HTTP/1.1"},
      {"GET / x HTTP/1.1\r\n\r\n", "allowed is METHOD /PATH HTTP/1.1"},
      {"G(T / HTTP/1.1\r\n\r\n", "allowed is METHOD /PATH HTTP/1.1"},
      {"\x16\x03\x01 garbage\r\n\r\n", "found '\\x16\\x03\\x01 garbage'"},
      {"GET / HTTP/2.0\r\n\r\n", "allowed is METHOD /PATH HTTP/1.1"},
      {"GET x HTTP/1.1\r\n\r\n", "allowed is one that begins with a slash"},
      {"GET /%4 HTTP/1.1\r\n\r\n", "two hexadecimal digits"},
      {"GET /%zz HTTP/1.1\r\n\r\n", "two hexadecimal digits"},
      {"GET /%00 HTTP/1.1\r\n\r\n", "not both 0"},
      {std::string("GET /\0a HTTP/1.1\r\n\r\n", 20), "found 'GET /\\x00\\x61 HTTP/1.1'"},
      {"GET / HTTP/1.1\r\na: b\nc: d\r\n\r\n", "allowed is text without control characters"},
      {"GET / HTTP/1.1\r\nno colon\r\n\r\n", "allowed is NAME: VALUE"},
      {"GET / HTTP/1.1\r\n: no name\r\n\r\n", "allowed is NAME: VALUE"},
      {"GET / HTTP/1.1\r\na: b\r\n folded\r\n\r\n", "allowed is NAME: VALUE"},
  };
  for (const auto& one : kCases) {
    const auto head = ParseHttpHead(one.text);
    EXPECT_TRUE(absl::IsInvalidArgument(head.status())) << one.text;
    EXPECT_THAT(std::string(head.status().message()), HasSubstr(one.why)) << one.text;
  }
}

TEST(HttpHead, TellsHowLongTheBodyIs) {
  const auto bytes = [](const std::string& headers) {
    return HttpBodyBytes(*ParseHttpHead("POST / HTTP/1.1\r\n" + headers + "\r\n"));
  };
  EXPECT_EQ(*bytes(""), 0u);
  EXPECT_EQ(*bytes("content-length: 12\r\n"), 12u);
  EXPECT_EQ(*bytes("Content-Length: 2097152\r\n"), kHttpBodyBytesMax);
  for (const char* const wrong : {"-1", "+1", "1x", "0x10", "1, 1", "1 1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(bytes("Content-Length: " + std::string(wrong) + "\r\n").status())) << wrong;
  }
  for (const char* const long_one : {"2097153", "18446744073709551616", "99999999999999999999999"}) {
    const absl::Status status = bytes("Content-Length: " + std::string(long_one) + "\r\n").status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << long_one;
    EXPECT_THAT(std::string(status.message()), HasSubstr("allowed are 2097152"));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(bytes("Transfer-Encoding: chunked\r\n").status()));
}

}  // namespace
}  // namespace slackline::http_head_test
