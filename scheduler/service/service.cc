#include "scheduler/service/service.h"

#include <chrono>
#include <climits>

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

int Milliseconds(absl::Duration duration) { return static_cast<int>(absl::ToInt64Milliseconds(duration)); }

template <typename Reply>
absl::Status Put(absl::StatusOr<Reply> result, Reply* reply) {
  if (result.ok()) *reply = *std::move(result);
  rpc::MendText(*reply);
  return result.status();
}

// Returns what `call` returns for the request, with text as ours would be: events, the state and other messages repeat
// it.
template <typename Request, typename Call>
auto Bounded(const Request& request, Call call) {
  if (rpc::HasValidText(request)) return call(request);
  Request bounded = request;
  rpc::MendText(bounded);
  return call(bounded);
}

grpc::ServerUnaryReactor* End(grpc::CallbackServerContext& context, const absl::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
  reactor->Finish(rpc::ToGrpc(status));
  return reactor;
}

}  // namespace

absl::StatusOr<security::AdmittedCaller> SchedulerService::Admit(const Context& context,
                                                                 absl::string_view method) const {
  return guard_.Admit(context, absl::StrCat("slackline.wire.Scheduler.", method));
}

template <typename Handle>
grpc::ServerUnaryReactor* SchedulerService::Serve(Context* context, absl::string_view method, Handle handle) const {
  const auto caller = Admit(*context, method);
  return End(*context, caller.ok() ? handle(*caller) : caller.status());
}

template <typename Handle>
grpc::ServerUnaryReactor* SchedulerService::ServeSlowly(Context* context, absl::string_view method, Handle handle) {
  if (const auto caller = Admit(*context, method); !caller.ok()) return End(*context, caller.status());
  return slow_lane_.Serve([handle] { return rpc::ToGrpc(handle()); });
}

grpc::ServerUnaryReactor* SchedulerService::RegisterServer(Context* context, const wire::RegisterServerRequest* request,
                                                           wire::RegisterServerReply* reply) {
  return Serve(context, "RegisterServer",
               [&](const security::AdmittedCaller&) { return Put(controller_.RegisterServer(*request), reply); });
}

grpc::ServerUnaryReactor* SchedulerService::RegisterWorker(Context* context, const wire::RegisterWorkerRequest* request,
                                                           wire::RegisterWorkerReply* reply) {
  return Serve(context, "RegisterWorker",
               [&](const security::AdmittedCaller&) { return Put(controller_.RegisterWorker(*request), reply); });
}

grpc::ServerUnaryReactor* SchedulerService::Heartbeat(Context* context, const wire::HeartbeatRequest* request,
                                                      wire::HeartbeatReply* reply) {
  return Serve(context, "Heartbeat", [&](const security::AdmittedCaller& caller) {
    const bool server = request->role() == wire::MEMBER_ROLE_SERVER;
    const absl::Status own = caller.MustBe(server ? security::Role::kServer : security::Role::kWorker,
                                           server ? "send a server's heartbeat" : "send a worker's heartbeat");
    return own.ok() ? Put(Bounded(*request, [&](const auto& bounded) { return controller_.Heartbeat(bounded); }), reply)
                    : own;
  });
}

grpc::ServerUnaryReactor* SchedulerService::FindImages(Context* context, const wire::FindImagesRequest* request,
                                                       wire::FindImagesReply* reply) {
  return ServeSlowly(context, "FindImages",
                     [this, request, reply] { return Put(controller_.FindImages(*request), reply); });
}

grpc::ServerUnaryReactor* SchedulerService::GetShardMap(Context* context, const wire::GetShardMapRequest* request,
                                                        wire::GetShardMapReply* reply) {
  return Serve(context, "GetShardMap",
               [&](const security::AdmittedCaller&) { return Put(controller_.GetShardMap(*request), reply); });
}

grpc::ServerUnaryReactor* SchedulerService::NextTask(Context* context, const wire::NextTaskRequest* request,
                                                     wire::NextTaskReply* reply) {
  return Serve(context, "NextTask",
               [&](const security::AdmittedCaller&) { return Put(controller_.NextTask(*request), reply); });
}

grpc::ServerUnaryReactor* SchedulerService::LeaseParts(Context* context, const wire::LeasePartsRequest* request,
                                                       wire::LeasePartsReply* reply) {
  return Serve(context, "LeaseParts",
               [&](const security::AdmittedCaller&) { return Put(controller_.LeaseParts(*request), reply); });
}

grpc::ServerUnaryReactor* SchedulerService::ReportEvaluation(Context* context, const wire::EvaluationReport* request,
                                                             wire::EvaluationReply*) {
  return Serve(context, "ReportEvaluation",
               [&](const security::AdmittedCaller&) { return controller_.ReportEvaluation(*request); });
}

grpc::ServerUnaryReactor* SchedulerService::GetStatus(Context* context, const wire::GetStatusRequest* request,
                                                      wire::GetStatusReply* reply) {
  return ServeSlowly(context, "GetStatus", [this, request, reply] {
    *reply = controller_.GetStatus();
    if (request->full() && board_ != nullptr) *reply->mutable_full() = board_->Status();
    rpc::MendText(*reply);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* SchedulerService::StopJob(Context* context, const wire::StopJobRequest* request,
                                                    wire::StopJobReply*) {
  return Serve(context, "StopJob", [&](const security::AdmittedCaller&) {
    controller_.StopJob(ValidText(request->reason()), request->failed());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* SchedulerService::Checkpoint(Context* context, const wire::CheckpointRequest* request,
                                                       wire::CheckpointReply* reply) {
  return Serve(context, "Checkpoint", [&](const security::AdmittedCaller&) {
    return Put(Bounded(*request, [&](const auto& bounded) { return controller_.Checkpoint(bounded); }), reply);
  });
}

grpc::ServerUnaryReactor* SchedulerService::ChangeServers(Context* context, const wire::ChangeServersRequest* request,
                                                          wire::ChangeServersReply* reply) {
  return Serve(context, "ChangeServers",
               [&](const security::AdmittedCaller&) { return Put(controller_.ChangeServers(*request), reply); });
}

grpc::ServerUnaryReactor* SchedulerService::ReportExit(Context* context, const wire::ReportExitRequest* request,
                                                       wire::ReportExitReply*) {
  return Serve(context, "ReportExit", [&](const security::AdmittedCaller&) {
    return Bounded(*request, [&](const auto& bounded) { return controller_.ReportExit(bounded); });
  });
}

absl::StatusOr<std::unique_ptr<SchedulerServer>> SchedulerServer::Start(const std::string& address,
                                                                        Controller& controller,
                                                                        const security::Security& security,
                                                                        StatusBoard* board,
                                                                        const ServiceLimits& limits) {
  std::unique_ptr<SchedulerServer> started(new SchedulerServer(controller, security.guard(), board, limits.slow_calls));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, security.server_credentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(kRequestBytesMax);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(limits.handshake));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Milliseconds(limits.idle));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.calls_of_connection);
  // Members send heartbeats anyway, and gRPC looks through the timers of all connections many times a second.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, INT_MAX);
  grpc::ResourceQuota quota("scheduler");
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
