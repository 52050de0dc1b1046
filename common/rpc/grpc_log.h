// Redirects gRPC's log, with any version of gRPC.
#pragma once

#include "absl/strings/string_view.h"

namespace slackline::rpc {

// Called with each line that gRPC logs, on any of its threads. gRPC has one log per process and accepts no object for
// it.
using GrpcLogHandler = void (*)(absl::string_view message);

// Sends gRPC's log lines to `handler` and no longer to stderr. Thread-safe; the last call counts.
void SetGrpcLogHandler(GrpcLogHandler handler);

}  // namespace slackline::rpc
