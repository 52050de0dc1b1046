// Calls and streams that may be made again.
#pragma once

#include "absl/status/status.h"

namespace slackline::rpc {

// Returns true for codes after which the same call may be retried: UNAVAILABLE, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED.
inline bool IsRetryable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status);
}

// Returns true if a stream that ended with this status is not worth opening again.
inline bool IsFinal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

}  // namespace slackline::rpc
