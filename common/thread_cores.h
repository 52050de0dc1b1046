// Which cores the system lets a thread run on. A thread begins with those of the thread that has made it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace slackline {

// Those of the calling thread, rising; empty where the system does not say.
std::vector<uint32_t> ThreadCores();

// Binds the calling thread; nothing where `cores` is empty.
//   kFailedPrecondition  the system does not let it; names the cores
absl::Status BindThread(absl::Span<const uint32_t> cores);

}  // namespace slackline
