#include "common/rpc/channel.h"

#include <malloc.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <vector>

#include <grpc/support/log.h>
#include <grpcpp/support/client_interceptor.h>
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/logging.h"

namespace slackline::rpc {
namespace {

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

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const Protection* protection,
                                           const grpc::ChannelArguments& arguments) {
  if (protection == nullptr) {
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }
  const auto credentials =
      protection->credentials == nullptr ? grpc::InsecureChannelCredentials() : protection->credentials;
  if (protection->metadata.first.empty()) {
    grpc::ChannelArguments patient = arguments;
    patient.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kHandshakeMs);
    return grpc::CreateCustomChannel(address, credentials, patient);
  }
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> adders;
  adders.push_back(std::make_unique<MetadataAdder>(protection->metadata));
  return grpc::experimental::CreateCustomChannelWithInterceptors(address, credentials, arguments, std::move(adders));
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
  gpr_set_log_function([](gpr_log_func_args*) {});
}

void SilenceGrpcLogButRefusals() {
  gpr_set_log_function([](gpr_log_func_args* entry) {
    if (!absl::StrContains(entry->message, "Handshake failed")) return;
    // gRPC has one log a process, and takes no object for it.
    static std::atomic<int64_t> next_s = 0;
    const int64_t now_s = absl::ToUnixSeconds(absl::Now());
    int64_t due_s = next_s.load();
    if (now_s < due_s || !next_s.compare_exchange_strong(due_s, now_s + 1)) return;
    log::Warning("a connection was refused: ", entry->message);
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
  return MakeChannel(address, protection.get(), DataChannelArguments());
}

std::shared_ptr<grpc::Channel> ControlChannel(const std::string& address,
                                              const std::shared_ptr<const Protection>& protection) {
  return MakeChannel(address, protection.get(), PlainArguments());
}

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

std::unique_ptr<grpc::ClientContext> ContextWithTimeout(absl::Duration timeout) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(timeout));
  context->set_wait_for_ready(false);
  return context;
}

bool IsRetryable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status);
}

}  // namespace slackline::rpc
