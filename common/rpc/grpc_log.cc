#include "common/rpc/grpc_log.h"

#include <atomic>

#include <grpcpp/version_info.h>

// Since 1.65 gRPC logs by Abseil, and gpr_set_log_function() has no effect; newer versions do not have it.
#if GRPC_CPP_VERSION_MAJOR > 1 || GRPC_CPP_VERSION_MINOR >= 65
#include "absl/base/log_severity.h"
#include "absl/log/globals.h"
#include "absl/log/initialize.h"
#include "absl/log/log_entry.h"
#include "absl/log/log_sink.h"
#include "absl/log/log_sink_registry.h"
#define SLACKLINE_GRPC_LOGS_BY_ABSEIL
#else
#include <grpc/support/log.h>
#endif

namespace slackline::rpc {
namespace {

std::atomic<GrpcLogHandler> current_handler = nullptr;

#ifdef SLACKLINE_GRPC_LOGS_BY_ABSEIL
class HandlerSink : public absl::LogSink {
 public:
  void Send(const absl::LogEntry& entry) override { current_handler.load()(entry.text_message()); }
};

void Install() {
  static const bool installed = [] {
    // Until Abseil is initialised, it writes all of its log to stderr.
    absl::InitializeLog();
    absl::SetStderrThreshold(absl::LogSeverityAtLeast::kFatal);
    absl::AddLogSink(new HandlerSink);  // for as long as the process lives
    return true;
  }();
  static_cast<void>(installed);
}
#else
void Install() {
  gpr_set_log_function([](gpr_log_func_args* entry) { current_handler.load()(entry->message); });
}
#endif

}  // namespace

void SetGrpcLogHandler(GrpcLogHandler handler) {
  current_handler = handler;
  Install();
}

}  // namespace slackline::rpc
