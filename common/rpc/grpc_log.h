// Takes what gRPC logs, whichever way this version of it logs.
#pragma once

#include "absl/strings/string_view.h"

namespace slackline::rpc {

// Called with each line that gRPC logs, by any of its threads. gRPC has one log a process, and takes no object for it.
using GrpcLogHandler = void (*)(absl::string_view message);

// From now on `handler` gets what gRPC logs, and stderr gets nothing of it. Thread-safe; the last call counts.
void SetGrpcLogHandler(GrpcLogHandler handler);

}  // namespace slackline::rpc
