#include "scheduler/service/service.h"

#include <chrono>

#include <grpcpp/resource_quota.h>
#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"
#include "common/rpc/message_text.h"
#include "common/text/utf8.h"

namespace slackline::scheduler {
namespace {

// Requests are a model's tensor list at most: of 200,000 tensors with names of 60 letters.
constexpr int kRequestBytesMax = 16 << 20;
// Calls in progress get so long to end.
constexpr std::chrono::seconds kShutdownTime(1);
// Each has a thread that waits for calls. One a core, as gRPC would have it, is more than one lock can use.
constexpr int kQueues = 4;

int Milliseconds(absl::Duration duration) { return static_cast<int>(absl::ToInt64Milliseconds(duration)); }

template <typename Reply>
grpc::Status Answer(absl::StatusOr<Reply> result, Reply* reply) {
  if (result.ok()) *reply = *std::move(result);
  rpc::MendText(*reply);
  return rpc::ToGrpc(result.status());
}

// A request whose text is as ours would be: events, the state and other messages repeat it.
template <typename Request>
Request Bounded(const Request& request) {
  Request bounded = request;
  rpc::MendText(bounded);
  return bounded;
}

}  // namespace

absl::StatusOr<security::AdmittedCaller> SchedulerService::Admit(const grpc::ServerContext& context,
                                                                 absl::string_view method) const {
  return guard_.Admit(context, absl::StrCat("slackline.wire.Scheduler.", method));
}

grpc::Status SchedulerService::RegisterServer(grpc::ServerContext* context, const wire::RegisterServerRequest* request,
                                              wire::RegisterServerReply* reply) {
  if (const auto caller = Admit(*context, "RegisterServer"); !caller.ok()) return rpc::ToGrpc(caller.status());
  return Answer(controller_.RegisterServer(*request), reply);
}

grpc::Status SchedulerService::RegisterWorker(grpc::ServerContext* context, const wire::RegisterWorkerRequest* request,
                                              wire::RegisterWorkerReply* reply) {
  if (const auto caller = Admit(*context, "RegisterWorker"); !caller.ok()) return rpc::ToGrpc(caller.status());
  return Answer(controller_.RegisterWorker(*request), reply);
}

grpc::Status SchedulerService::Heartbeat(grpc::ServerContext* context, const wire::HeartbeatRequest* request,
                                         wire::HeartbeatReply* reply) {
  const auto caller = Admit(*context, "Heartbeat");
  if (!caller.ok()) return rpc::ToGrpc(caller.status());
  const bool server = request->role() == wire::MEMBER_ROLE_SERVER;
  const absl::Status own = caller->MustBe(server ? security::Role::kServer : security::Role::kWorker,
                                          server ? "send a server's heartbeat" : "send a worker's heartbeat");
  if (!own.ok()) return rpc::ToGrpc(own);
  return Answer(controller_.Heartbeat(Bounded(*request)), reply);
}

grpc::Status SchedulerService::FindImages(grpc::ServerContext* context, const wire::FindImagesRequest* request,
                                          wire::FindImagesReply* reply) {
  if (const auto caller = Admit(*context, "FindImages"); !caller.ok()) return rpc::ToGrpc(caller.status());
  return Answer(controller_.FindImages(*request), reply);
}

grpc::Status SchedulerService::GetShardMap(grpc::ServerContext* context, const wire::GetShardMapRequest* request,
                                           wire::GetShardMapReply* reply) {
  if (const auto caller = Admit(*context, "GetShardMap"); !caller.ok()) return rpc::ToGrpc(caller.status());
  return Answer(controller_.GetShardMap(*request), reply);
}

grpc::Status SchedulerService::NextTask(grpc::ServerContext* context, const wire::NextTaskRequest* request,
                                        wire::NextTaskReply* reply) {
  if (const auto caller = Admit(*context, "NextTask"); !caller.ok()) return rpc::ToGrpc(caller.status());
  return Answer(controller_.NextTask(*request), reply);
}

grpc::Status SchedulerService::LeaseParts(grpc::ServerContext* context, const wire::LeasePartsRequest* request,
                                          wire::LeasePartsReply* reply) {
  if (const auto caller = Admit(*context, "LeaseParts"); !caller.ok()) return rpc::ToGrpc(caller.status());
  return Answer(controller_.LeaseParts(*request), reply);
}

grpc::Status SchedulerService::ReportEvaluation(grpc::ServerContext* context, const wire::EvaluationReport* request,
                                                wire::EvaluationReply*) {
  if (const auto caller = Admit(*context, "ReportEvaluation"); !caller.ok()) return rpc::ToGrpc(caller.status());
  return rpc::ToGrpc(controller_.ReportEvaluation(*request));
}

grpc::Status SchedulerService::GetStatus(grpc::ServerContext* context, const wire::GetStatusRequest* request,
                                         wire::GetStatusReply* reply) {
  if (const auto caller = Admit(*context, "GetStatus"); !caller.ok()) return rpc::ToGrpc(caller.status());
  *reply = controller_.GetStatus();
  if (request->full() && board_ != nullptr) *reply->mutable_full() = board_->Status();
  rpc::MendText(*reply);
  return grpc::Status::OK;
}

grpc::Status SchedulerService::StopJob(grpc::ServerContext* context, const wire::StopJobRequest* request,
                                       wire::StopJobReply*) {
  if (const auto caller = Admit(*context, "StopJob"); !caller.ok()) return rpc::ToGrpc(caller.status());
  controller_.StopJob(ValidText(request->reason()), request->failed());
  return grpc::Status::OK;
}

grpc::Status SchedulerService::Checkpoint(grpc::ServerContext* context, const wire::CheckpointRequest* request,
                                          wire::CheckpointReply* reply) {
  if (const auto caller = Admit(*context, "Checkpoint"); !caller.ok()) return rpc::ToGrpc(caller.status());
  return Answer(controller_.Checkpoint(Bounded(*request)), reply);
}

grpc::Status SchedulerService::ChangeServers(grpc::ServerContext* context, const wire::ChangeServersRequest* request,
                                             wire::ChangeServersReply* reply) {
  if (const auto caller = Admit(*context, "ChangeServers"); !caller.ok()) return rpc::ToGrpc(caller.status());
  return Answer(controller_.ChangeServers(*request), reply);
}

grpc::Status SchedulerService::ReportExit(grpc::ServerContext* context, const wire::ReportExitRequest* request,
                                          wire::ReportExitReply*) {
  if (const auto caller = Admit(*context, "ReportExit"); !caller.ok()) return rpc::ToGrpc(caller.status());
  return rpc::ToGrpc(controller_.ReportExit(Bounded(*request)));
}

absl::StatusOr<std::unique_ptr<SchedulerServer>> SchedulerServer::Start(const std::string& address,
                                                                        Controller& controller,
                                                                        const security::Security& security,
                                                                        StatusBoard* board,
                                                                        const ServiceLimits& limits) {
  std::unique_ptr<SchedulerServer> started(new SchedulerServer(controller, security.guard(), board));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, security.server_credentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(kRequestBytesMax);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(limits.handshake));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Milliseconds(limits.idle));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.calls_of_connection);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, kQueues);
  grpc::ResourceQuota quota("scheduler");
  quota.SetMaxThreads(limits.threads);
  quota.Resize(limits.bytes);
  builder.SetResourceQuota(quota);
  builder.RegisterService(&started->service_);
  started->server_ = builder.BuildAndStart();
  if (started->server_ == nullptr || port == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, ": the port is taken, or the address is not this machine's"));
  }
  started->port_ = static_cast<uint16_t>(port);
  return started;
}

SchedulerServer::~SchedulerServer() {
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kShutdownTime);
}

}  // namespace slackline::scheduler
