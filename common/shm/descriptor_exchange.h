// Sends requests to a DescriptorListener of another process.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/shm/descriptor.h"

namespace slackline::shm {

struct DescriptorMessage {
  std::string message;
  std::vector<Descriptor> descriptors;
};

// Sends one request to the listener called `name` and returns its reply. `timeout` covers all of it. `descriptors` are
// borrowed until it returns.
//   kUnavailable        no listener has this name, or the listener went away
//   kPermissionDenied   the listener belongs to another user, or refuses requests of this one
//   kDeadlineExceeded   the reply was not complete in time
//   kInvalidArgument    the name, message or number of descriptors is one that no listener takes, or the reply is wrong
//   kResourceExhausted  this process may not open as many files as the reply has
// Other codes come from the handler.
absl::StatusOr<DescriptorMessage> Exchange(absl::string_view name, absl::string_view message,
                                           absl::Span<const int> descriptors, absl::Duration timeout);

}  // namespace slackline::shm
