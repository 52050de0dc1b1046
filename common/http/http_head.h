// HTTP/1 as bytes: the head of an incoming request, and an outgoing response.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/http/http_server.h"

namespace slackline {

struct HttpHead {
  std::string method;
  // The path begins with a slash. %XX is decoded; the rest is unchanged.
  std::string path;
  // Text after the question mark, as it came.
  std::string query;
  // Headers in the order in which they came.
  std::vector<std::pair<std::string, std::string>> headers = {};

  // Returns the value of the first header with that name, whose case does not matter. Empty if there is none.
  std::string Header(absl::string_view name) const;
};

// Returns the length of the head at the beginning of `received`, including the empty line after it. Returns nullopt if
// more bytes must come.
std::optional<size_t> HttpHeadBytes(absl::string_view received);

// head := METHOD " " target " HTTP/1." digit CRLF { name ":" value CRLF } CRLF
//   kInvalidArgument  "found X; allowed is Y"
absl::StatusOr<HttpHead> ParseHttpHead(absl::string_view head);

// Returns the bytes of the body that follows a head.
//   kInvalidArgument   the head gives no length that can be read
//   kResourceExhausted the body is longer than kHttpBodyBytesMax
absl::StatusOr<size_t> HttpBodyBytes(const HttpHead& head);

// Returns a response up to its body. If `body_bytes` is nullopt, the body ends with the connection.
std::string HttpHeadText(const HttpResponse& response, std::optional<uint64_t> body_bytes);
// Returns a whole response that is not a stream. With `head_only` the body is left out, but the head still gives its
// length.
std::string HttpText(const HttpResponse& response, bool head_only = false);

}  // namespace slackline
