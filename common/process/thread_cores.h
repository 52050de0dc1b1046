// The cores on which the system lets a thread run. A thread starts with the cores of the thread that created it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace slackline {

// Returns the cores of the calling thread, ascending; empty if the system does not tell.
std::vector<uint32_t> ThreadCores();

// Binds the calling thread to `cores`; does nothing if `cores` is empty.
//   kFailedPrecondition  the system refuses; names the cores
absl::Status BindThread(absl::Span<const uint32_t> cores);

}  // namespace slackline
