#include "scheduler/service.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"

namespace slackline::scheduler {
namespace {

// Requests are a model's tensor list at most.
constexpr int kRequestBytesMax = 4 << 20;
// Calls in progress get so long to end.
constexpr std::chrono::seconds kShutdownTime(1);

template <typename Reply>
grpc::Status Answer(absl::StatusOr<Reply> result, Reply* reply) {
  if (result.ok()) *reply = *std::move(result);
  return rpc::ToGrpc(result.status());
}

}  // namespace

grpc::Status SchedulerService::RegisterServer(grpc::ServerContext*, const wire::RegisterServerRequest* request,
                                              wire::RegisterServerReply* reply) {
  return Answer(controller_.RegisterServer(*request), reply);
}

grpc::Status SchedulerService::RegisterWorker(grpc::ServerContext*, const wire::RegisterWorkerRequest* request,
                                              wire::RegisterWorkerReply* reply) {
  return Answer(controller_.RegisterWorker(*request), reply);
}

grpc::Status SchedulerService::Heartbeat(grpc::ServerContext*, const wire::HeartbeatRequest* request,
                                         wire::HeartbeatReply* reply) {
  return Answer(controller_.Heartbeat(*request), reply);
}

grpc::Status SchedulerService::GetShardMap(grpc::ServerContext*, const wire::GetShardMapRequest* request,
                                           wire::GetShardMapReply* reply) {
  return Answer(controller_.GetShardMap(*request), reply);
}

grpc::Status SchedulerService::NextTask(grpc::ServerContext*, const wire::NextTaskRequest* request,
                                        wire::NextTaskReply* reply) {
  return Answer(controller_.NextTask(*request), reply);
}

grpc::Status SchedulerService::ReportEvaluation(grpc::ServerContext*, const wire::EvaluationReport* request,
                                                wire::EvaluationReply*) {
  return rpc::ToGrpc(controller_.ReportEvaluation(*request));
}

grpc::Status SchedulerService::GetStatus(grpc::ServerContext*, const wire::GetStatusRequest*,
                                         wire::GetStatusReply* reply) {
  *reply = controller_.GetStatus();
  return grpc::Status::OK;
}

grpc::Status SchedulerService::StopJob(grpc::ServerContext*, const wire::StopJobRequest* request, wire::StopJobReply*) {
  controller_.StopJob(request->reason(), request->failed());
  return grpc::Status::OK;
}

grpc::Status SchedulerService::Checkpoint(grpc::ServerContext*, const wire::CheckpointRequest* request,
                                          wire::CheckpointReply* reply) {
  return Answer(controller_.Checkpoint(*request), reply);
}

grpc::Status SchedulerService::ReportExit(grpc::ServerContext*, const wire::ReportExitRequest* request,
                                          wire::ReportExitReply*) {
  return rpc::ToGrpc(controller_.ReportExit(*request));
}

absl::StatusOr<std::unique_ptr<SchedulerServer>> SchedulerServer::Start(const std::string& address,
                                                                        Controller& controller) {
  std::unique_ptr<SchedulerServer> started(new SchedulerServer(controller));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(kRequestBytesMax);
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
