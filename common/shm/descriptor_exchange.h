// Asks a DescriptorListener of another process.
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

// One question to the listener of that name, and its answer. `timeout` is for all of it. `descriptors` are borrowed
// until it returns.
//   kUnavailable        nobody listens there, or the listener went away
//   kPermissionDenied   the listener belongs to another user, or does not let this one ask
//   kDeadlineExceeded   no whole answer in time
//   kInvalidArgument    a name, message or number of descriptors that no listener takes, or a wrong answer
//   kResourceExhausted  this process may not open as many files as came
// Other codes are the handler's.
absl::StatusOr<DescriptorMessage> Exchange(absl::string_view name, absl::string_view message,
                                           absl::Span<const int> descriptors, absl::Duration timeout);

}  // namespace slackline::shm
