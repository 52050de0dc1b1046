// Heads of HTTP requests: read, or refused with a reason. Headers that were read are found again.
#include <string>

#include "common/base/check.h"
#include "common/http/http_head.h"
#include "tests/fuzz/bytes_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view received = slackline::fuzz::BytesInput(data, size).TakeRest();
  const size_t bytes = slackline::HttpHeadBytes(received).value_or(received.size());
  SLACKLINE_CHECK(bytes <= received.size());
  const absl::StatusOr<slackline::HttpHead> head = slackline::ParseHttpHead(received.substr(0, bytes));
  if (!head.ok()) {
    SLACKLINE_CHECK(absl::IsInvalidArgument(head.status()) && !head.status().message().empty());
    return 0;
  }
  SLACKLINE_CHECK(!head->method.empty() && head->path.front() == '/' && head->path.find('\0') == std::string::npos);
  const absl::StatusOr<size_t> body = slackline::HttpBodyBytes(*head);
  SLACKLINE_CHECK(!body.ok() || *body <= slackline::kHttpBodyBytesMax);
  if (!head->headers.empty()) SLACKLINE_CHECK(head->Header(head->headers[0].first) == head->headers[0].second);
  return 0;
}
