#include "ps/service/control.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"

namespace slackline::ps {
namespace {

// Runs `work`, which returns an absl::StatusOr<Reply>, in the mailbox's thread.
template <typename Reply, typename Work>
grpc::Status Ask(Mailbox& mailbox, absl::Duration timeout, const Work& work, Reply& reply) {
  using Result = absl::StatusOr<Reply>;
  absl::StatusOr<Result> done = mailbox.Ask<Result>(work, timeout);
  if (!done.ok()) return rpc::ToGrpc(done.status());
  if (!done->ok()) return rpc::ToGrpc(done->status());
  reply = **std::move(done);
  return grpc::Status::OK;
}

}  // namespace

ControlService::ControlService(Mailbox& mailbox, ShardTable& table, absl::Duration timeout, security::Guard guard,
                               std::function<void(const wire::StopRequest& request)> stop)
    : mailbox_(mailbox), table_(table), timeout_(timeout), guard_(std::move(guard)), stop_(std::move(stop)) {}

absl::Status ControlService::Admit(const grpc::ServerContext& context, absl::string_view method) const {
  return guard_.Admit(context, absl::StrCat("slackline.wire.ParameterServerControl.", method)).status();
}

// Requests are copied into the work: it may run after the call has given up.

grpc::Status ControlService::InstallShards(grpc::ServerContext* context, const wire::InstallShardsRequest* request,
                                           wire::InstallShardsReply* reply) {
  if (absl::Status in = Admit(*context, "InstallShards"); !in.ok()) return rpc::ToGrpc(in);
  const auto install = [this, request = *request]() -> absl::StatusOr<wire::InstallShardsReply> {
    if (absl::Status installed = table_.Install(request); !installed.ok()) return installed;
    wire::InstallShardsReply reply = table_.Restored();
    reply.set_takes_optimizer(true);
    return reply;
  };
  return Ask(mailbox_, timeout_, install, *reply);
}

grpc::Status ControlService::SetMembers(grpc::ServerContext* context, const wire::SetMembersRequest* request,
                                        wire::SetMembersReply* reply) {
  if (absl::Status in = Admit(*context, "SetMembers"); !in.ok()) return rpc::ToGrpc(in);
  return Ask(
      mailbox_, timeout_, [this, request = *request] { return table_.SetMembers(request); }, *reply);
}

grpc::Status ControlService::TakeShards(grpc::ServerContext* context, const wire::TakeShardsRequest* request,
                                        wire::TakeShardsReply* /*reply*/) {
  if (absl::Status in = Admit(*context, "TakeShards"); !in.ok()) return rpc::ToGrpc(in);
  const auto done = mailbox_.Ask<absl::Status>([this, request = *request] { return table_.Take(request); }, timeout_);
  return rpc::ToGrpc(done.ok() ? *done : done.status());
}

grpc::Status ControlService::BeginCheckpoint(grpc::ServerContext* context, const wire::BeginCheckpointRequest* request,
                                             wire::BeginCheckpointReply* reply) {
  if (absl::Status in = Admit(*context, "BeginCheckpoint"); !in.ok()) return rpc::ToGrpc(in);
  return Ask(
      mailbox_, timeout_, [this, request = *request] { return table_.BeginCheckpoint(request); }, *reply);
}

grpc::Status ControlService::Stop(grpc::ServerContext* context, const wire::StopRequest* request,
                                  wire::StopReply* /*reply*/) {
  if (absl::Status in = Admit(*context, "Stop"); !in.ok()) return rpc::ToGrpc(in);
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
