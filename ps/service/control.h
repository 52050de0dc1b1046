// Calls from the scheduler to a server. They are synchronous; the sequencer thread does their work.
#pragma once

#include <functional>

#include "absl/time/time.h"
#include "common/security/guard.h"
#include "parameter_server.grpc.pb.h"
#include "ps/service/mailbox.h"
#include "ps/service/shard_table.h"

namespace slackline::ps {

// gRPC service that passes the scheduler's calls to the shard table.
//
// Thread-safety: safe; gRPC calls it from its own threads.
// Ownership:     borrows the mailbox, and the table for use on the sequencer thread.
class ControlService : public wire::ParameterServerControl::Service {
 public:
  // `stop` runs on the sequencer thread. A call waits for the sequencer for at most `timeout`.
  ControlService(Mailbox& mailbox, ShardTable& table, absl::Duration timeout, security::Guard guard,
                 std::function<void(const wire::StopRequest& request)> stop);

  grpc::Status InstallShards(grpc::ServerContext* context, const wire::InstallShardsRequest* request,
                             wire::InstallShardsReply* reply) override;
  grpc::Status SetMembers(grpc::ServerContext* context, const wire::SetMembersRequest* request,
                          wire::SetMembersReply* reply) override;
  grpc::Status TakeShards(grpc::ServerContext* context, const wire::TakeShardsRequest* request,
                          wire::TakeShardsReply* reply) override;
  grpc::Status BeginCheckpoint(grpc::ServerContext* context, const wire::BeginCheckpointRequest* request,
                               wire::BeginCheckpointReply* reply) override;
  grpc::Status Stop(grpc::ServerContext* context, const wire::StopRequest* request, wire::StopReply* reply) override;

 private:
  // Checks whether the caller may call `method`, given by its name without package and service.
  absl::Status Admit(const grpc::ServerContext& context, absl::string_view method) const;

  Mailbox& mailbox_;
  ShardTable& table_;
  const absl::Duration timeout_;
  const security::Guard guard_;
  const std::function<void(const wire::StopRequest& request)> stop_;
};

}  // namespace slackline::ps
