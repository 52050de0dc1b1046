#include "common/rpc/channel.h"

#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include <grpcpp/support/client_interceptor.h>
#include <grpcpp/version_info.h>
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/log/logging.h"
#include "common/rpc/message_text.h"
#include "common/text/utf8.h"

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

// Called with each line that gRPC logs, on any of its threads. gRPC has one log per process and accepts no object for
// it.
using GrpcLogHandler = void (*)(absl::string_view message);

std::atomic<GrpcLogHandler> current_handler = nullptr;

#ifdef SLACKLINE_GRPC_LOGS_BY_ABSEIL
class HandlerSink : public absl::LogSink {
 public:
  void Send(const absl::LogEntry& entry) override { current_handler.load()(entry.text_message()); }
};

void Install() {
  static const bool installed = [] {
    // Abseil writes all of its log to stderr until it is initialised.
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

// Sends gRPC's log lines to `handler` and no longer to stderr. Thread-safe; the last call counts.
void SetGrpcLogHandler(GrpcLogHandler handler) {
  current_handler = handler;
  Install();
}

// An attempt to connect may take so long: a busy machine's peer answers late. With TLS it has more to compute.
constexpr int kConnectMs = 2000;
constexpr int kHandshakeMs = 5000;
constexpr int kLookAheadBytes = 16 << 20;
constexpr int kHttp2FrameBytes = 4 << 20;
// Frames carry at most 4 MiB of tensor. gRPC gathers a message before we see it, so this bounds what a stream of
// garbage can make a process hold.
constexpr int kMessageBytesMax = 8 << 20;

// Sets what both ends of the data path have in common; `set` takes a name and a number.
template <typename Set>
void SetDataArguments(Set set) {
  set(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  set(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookAheadBytes);
  set(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kHttp2FrameBytes);
  set(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, kMessageBytesMax);
  set(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1);
}

grpc::ChannelArguments PlainArguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_INHIBIT_HEALTH_CHECKING, 1);
  // gRPC's own back-off grows to two minutes; a job's peers come back within a few heartbeats or never.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);  // of the attempt, not of the pause after it
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return arguments;
}

// Adds metadata to every call of a channel, streams too, so that no caller can forget it.
class MetadataAdder : public grpc::experimental::Interceptor,
                      public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit MetadataAdder(std::pair<std::string, std::string> metadata) : metadata_(std::move(metadata)) {}

  Interceptor* CreateClientInterceptor(grpc::experimental::ClientRpcInfo* /*info*/) override {
    return new MetadataAdder(metadata_);  // gRPC deletes it
  }
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using Point = grpc::experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(Point::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->insert(metadata_);
    }
    methods->Proceed();
  }

 private:
  const std::pair<std::string, std::string> metadata_;
};

// Mends the text of every request that a channel sends, so that no caller can forget it.
class TextMender : public grpc::experimental::Interceptor,
                   public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  Interceptor* CreateClientInterceptor(grpc::experimental::ClientRpcInfo* /*info*/) override {
    return new TextMender;  // gRPC deletes it with the call
  }
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using Point = grpc::experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(Point::PRE_SEND_MESSAGE)) {
      // Generated code sends by this base class; null if the bytes are made already.
      const auto* sent = static_cast<const google::protobuf::MessageLite*>(methods->GetSendMessage());
      const auto* message = dynamic_cast<const google::protobuf::Message*>(sent);
      if (message != nullptr && !HasValidText(*message)) {
        mended_.reset(message->New());
        mended_->CopyFrom(*message);
        MendText(*mended_);
        methods->ModifySendMessage(static_cast<const google::protobuf::MessageLite*>(mended_.get()));
      }
    }
    methods->Proceed();
  }

 private:
  std::unique_ptr<google::protobuf::Message> mended_;
};

using Interceptors = std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>>;

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const Protection* protection,
                                           grpc::ChannelArguments arguments, Interceptors interceptors) {
  auto credentials = grpc::InsecureChannelCredentials();
  if (protection != nullptr) {
    if (protection->credentials != nullptr) credentials = protection->credentials;
    if (protection->metadata.first.empty()) {
      arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kHandshakeMs);
    } else {
      interceptors.push_back(std::make_unique<MetadataAdder>(protection->metadata));
    }
  }
  if (interceptors.empty()) return grpc::CreateCustomChannel(address, credentials, arguments);
  return grpc::experimental::CreateCustomChannelWithInterceptors(address, credentials, arguments,
                                                                 std::move(interceptors));
}

// gRPC lets the metadata of an answer have 8 KiB, encoded; an error of more would arrive as RESOURCE_EXHAUSTED.
std::string StatusText(absl::string_view message) {
  constexpr size_t kEncodedMax = 6 << 10;
  constexpr size_t kLetterMax = 3;  // of one byte: "%C3"
  const auto is_plain = [](char c) { return c >= ' ' && c <= '~' && c != '%'; };
  std::string text = ValidText(message, kEncodedMax);
  const auto plain = static_cast<size_t>(std::count_if(text.begin(), text.end(), is_plain));
  const size_t encoded = plain + kLetterMax * (text.size() - plain);
  return encoded <= kEncodedMax ? text : ValidText(text, kEncodedMax / kLetterMax);
}

}  // namespace

void PrepareProcess() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest value that every glibc accepts
  mallopt(M_TRIM_THRESHOLD, INT32_MAX);
  mallopt(M_TOP_PAD, 16 << 20);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);  // where it is refused, the old limit holds and is named when it is met
  }
}

void SilenceGrpcLog() {
  SetGrpcLogHandler([](absl::string_view) {});
}

void SilenceGrpcLogButRefusals() {
  SetGrpcLogHandler([](absl::string_view message) {
    if (!absl::StrContains(message, "Handshake failed")) return;
    static std::atomic<int64_t> next_s = 0;
    const int64_t now_s = absl::ToUnixSeconds(absl::Now());
    int64_t due_s = next_s.load();
    if (now_s < due_s || !next_s.compare_exchange_strong(due_s, now_s + 1)) return;
    log::Warning("a connection was refused: ", message);
  });
}

bool IsMistrust(const absl::Status& status) {
  return absl::IsUnavailable(status) && (absl::StrContains(status.message(), "Tls handshake failed") ||
                                         absl::StrContains(status.message(), "Custom verification check failed"));
}

grpc::ChannelArguments DataChannelArguments() {
  grpc::ChannelArguments arguments = PlainArguments();
  SetDataArguments([&](const char* name, int value) { arguments.SetInt(name, value); });
  return arguments;
}

void SetDataServerArguments(grpc::ServerBuilder& builder) {
  SetDataArguments([&](const char* name, int value) { builder.AddChannelArgument(name, value); });
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.SetMaxSendMessageSize(-1);
  // Two servers on one port would share its connections at random.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

std::string UnixAddress(const std::string& name) { return absl::StrCat("unix-abstract:", name); }

std::shared_ptr<grpc::Channel> DataChannel(const std::string& address,
                                           const std::shared_ptr<const Protection>& protection) {
  return MakeChannel(address, protection.get(), DataChannelArguments(), {});
}

std::shared_ptr<grpc::Channel> ControlChannel(const std::string& address,
                                              const std::shared_ptr<const Protection>& protection) {
  Interceptors interceptors;
  interceptors.push_back(std::make_unique<TextMender>());
  return MakeChannel(address, protection.get(), PlainArguments(), std::move(interceptors));
}

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), StatusText(status.message()));
}

std::unique_ptr<grpc::ClientContext> ContextWithTimeout(absl::Duration timeout) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(timeout));
  context->set_wait_for_ready(false);
  return context;
}

}  // namespace slackline::rpc
