#include "cli/service/service_server.h"

#include <chrono>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "cli/base/replace_file.h"
#include "cli/service/service_folder.h"
#include "common/rpc/channel.h"
#include "common/rpc/message_text.h"
#include "common/security/make_credentials.h"
#include "job.pb.h"

namespace slackline::cli {
namespace {

// Job files and settings.
constexpr int kSubmitBytesMax = 4 << 20;
// Calls in progress get so long to end.
constexpr std::chrono::seconds kServiceShutdown(1);

}  // namespace

template <typename Reply, typename Handle>
grpc::Status JobServiceCalls::Serve(const grpc::ServerContext& context, const char* method, Reply* reply,
                                    Handle handle) const {
  const auto caller = guard_.Admit(context, absl::StrCat("slackline.wire.JobService.", method));
  if (!caller.ok()) return rpc::ToGrpc(caller.status());
  absl::StatusOr<Reply> result = handle();
  // UNAVAILABLE would say that nobody has answered.
  if (absl::IsUnavailable(result.status())) return rpc::ToGrpc(absl::InternalError(result.status().message()));
  if (!result.ok()) return rpc::ToGrpc(result.status());
  *reply = *std::move(result);
  rpc::MendText(*reply);
  return grpc::Status::OK;
}

grpc::Status JobServiceCalls::Submit(grpc::ServerContext* context, const wire::SubmitRequest* request,
                                     wire::SubmitReply* reply) {
  return Serve(*context, "Submit", reply, [&] { return host_.Submit(*request); });
}

grpc::Status JobServiceCalls::ListJobs(grpc::ServerContext* context, const wire::ListJobsRequest* request,
                                       wire::ListJobsReply* reply) {
  return Serve(*context, "ListJobs", reply, [&] { return host_.List(*request); });
}

grpc::Status JobServiceCalls::OrderJob(grpc::ServerContext* context, const wire::OrderJobRequest* request,
                                       wire::OrderJobReply* reply) {
  return Serve(*context, "OrderJob", reply, [&] { return host_.Order(*request); });
}

grpc::Status JobServiceCalls::ReadJobLog(grpc::ServerContext* context, const wire::ReadJobLogRequest* request,
                                         wire::ReadJobLogReply* reply) {
  return Serve(*context, "ReadJobLog", reply, [&] { return host_.ReadLog(*request); });
}

absl::StatusOr<std::unique_ptr<JobServiceServer>> JobServiceServer::Start(const std::string& address,
                                                                          const std::filesystem::path& folder,
                                                                          JobHost& host) {
  std::error_code error;
  if (!std::filesystem::exists(TokenOfService(folder), error)) {
    if (absl::Status made = security::MakeToken(TokenOfService(folder), /*force=*/false); !made.ok()) return made;
  }
  const absl::StatusOr<security::Security> security = OpenSecurityOfService(folder);
  if (!security.ok()) return security.status();
  std::unique_ptr<JobServiceServer> started(new JobServiceServer(host, security->guard()));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, security->server_credentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(kSubmitBytesMax);
  builder.RegisterService(&started->calls_);
  started->server_ = builder.BuildAndStart();
  if (started->server_ == nullptr || port == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, ": the port is taken, or the address is not this machine's"));
  }
  started->port_ = static_cast<uint16_t>(port);
  const std::string bound = absl::StrCat(address.substr(0, address.rfind(':')), ":", port, "\n");
  if (absl::Status written = ReplaceFile(AddressOfService(folder), bound); !written.ok()) return written;
  return started;
}

JobServiceServer::~JobServiceServer() {
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kServiceShutdown);
}

}  // namespace slackline::cli
