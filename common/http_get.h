// One request to somebody else's small HTTP server, and its answer.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace slackline {

// The body of what `address`, HOST:PORT, has at `path`. Plain text; no redirections are followed.
//   kNotFound            no such host
//   kUnavailable         nobody listens there, or what answers is no HTTP server
//   kDeadlineExceeded    not all of it came within `timeout`
//   kFailedPrecondition  it answers with another code than 200
//   kResourceExhausted   the answer is longer than 16 MiB
absl::StatusOr<std::string> HttpGet(const std::string& address, const std::string& path, absl::Duration timeout);

}  // namespace slackline
