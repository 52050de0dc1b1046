// Sends a request to the small HTTP server of another program and receives the answer.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace slackline {

// Returns the body that `address`, HOST:PORT, serves at `path`. Uses plain text and follows no redirections.
//   kNotFound            the host is unknown
//   kUnavailable         no process listens there, or it is no HTTP server
//   kDeadlineExceeded    the answer was not complete within `timeout`
//   kFailedPrecondition  the answer has another code than 200
//   kResourceExhausted   the answer is longer than 16 MiB
absl::StatusOr<std::string> HttpGet(const std::string& address, const std::string& path, absl::Duration timeout);

}  // namespace slackline
