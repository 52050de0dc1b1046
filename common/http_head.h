// HTTP/1 as bytes: the head of a request as it arrives, and a response as it leaves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/http_server.h"

namespace slackline {

struct HttpHead {
  std::string method;
  // Begins with a slash; %XX is decoded, nothing else is changed.
  std::string path;
  // Behind the question mark, as it came.
  std::string query;
  // In the order in which they came.
  std::vector<std::pair<std::string, std::string>> headers = {};

  // The first header of that name, in any case of letters; empty if there is none.
  std::string Header(absl::string_view name) const;
};

// Bytes of the head at the beginning of `received`, the empty line behind it included; nullopt: more must come.
std::optional<size_t> HttpHeadBytes(absl::string_view received);

// head := METHOD " " target " HTTP/1." digit CRLF { name ":" value CRLF } CRLF
//   kInvalidArgument  "found X; allowed is Y"
absl::StatusOr<HttpHead> ParseHttpHead(absl::string_view head);

// Everything of a response up to its body; nullopt: the body ends with the connection.
std::string HttpHeadText(const HttpResponse& response, std::optional<uint64_t> body_bytes);
// All of a response that is no stream; `head_only`: without the body, whose length it says.
std::string HttpText(const HttpResponse& response, bool head_only = false);

}  // namespace slackline
