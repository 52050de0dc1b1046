#include "ps/service/control.h"

#include <utility>

#include "common/rpc/channel.h"

namespace slackline::ps {

ControlService::ControlService(Mailbox& mailbox, ShardTable& table, absl::Duration timeout,
                               std::function<void(const wire::StopRequest& request)> stop)
    : mailbox_(mailbox), table_(table), timeout_(timeout), stop_(std::move(stop)) {}

// Requests are copied into the work: it may run after the call has given up.

grpc::Status ControlService::InstallShards(grpc::ServerContext* /*context*/, const wire::InstallShardsRequest* request,
                                           wire::InstallShardsReply* /*reply*/) {
  const auto done =
      mailbox_.Ask<absl::Status>([this, request = *request] { return table_.Install(request); }, timeout_);
  return rpc::ToGrpc(done.ok() ? *done : done.status());
}

grpc::Status ControlService::SetMembers(grpc::ServerContext* /*context*/, const wire::SetMembersRequest* request,
                                        wire::SetMembersReply* reply) {
  using Result = absl::StatusOr<wire::SetMembersReply>;
  const absl::StatusOr<Result> done =
      mailbox_.Ask<Result>([this, request = *request] { return table_.SetMembers(request); }, timeout_);
  if (!done.ok()) return rpc::ToGrpc(done.status());
  if (!done->ok()) return rpc::ToGrpc(done->status());
  *reply = **done;
  return grpc::Status::OK;
}

grpc::Status ControlService::BeginCheckpoint(grpc::ServerContext* /*context*/,
                                             const wire::BeginCheckpointRequest* request,
                                             wire::BeginCheckpointReply* reply) {
  using Result = absl::StatusOr<wire::BeginCheckpointReply>;
  const absl::StatusOr<Result> done =
      mailbox_.Ask<Result>([this, request = *request] { return table_.BeginCheckpoint(request); }, timeout_);
  if (!done.ok()) return rpc::ToGrpc(done.status());
  if (!done->ok()) return rpc::ToGrpc(done->status());
  *reply = **done;
  return grpc::Status::OK;
}

grpc::Status ControlService::Stop(grpc::ServerContext* /*context*/, const wire::StopRequest* request,
                                  wire::StopReply* /*reply*/) {
  const auto done = mailbox_.Ask<absl::Status>(
      [this, request = *request] {
        absl::Status allowed = table_.CheckJob(JobId(request.job()));
        if (allowed.ok()) stop_(request);
        return allowed;
      },
      timeout_);
  return rpc::ToGrpc(done.ok() ? *done : done.status());
}

}  // namespace slackline::ps
