#include "cli/scheduler_client.h"

namespace slackline::cli {
namespace {

// The scheduler is on this machine or near; an order that takes longer than this will not arrive.
constexpr absl::Duration kOrderTimeout = absl::Seconds(2);

}  // namespace

bool HasEnded(const wire::GetStatusReply& status) {
  return status.state() == wire::JOB_DONE || status.state() == wire::JOB_FAILED || status.state() == wire::JOB_STOPPED;
}

SchedulerClient::SchedulerClient(const std::string& address, const std::shared_ptr<const rpc::Protection>& protection)
    : channel_(address, protection) {}

absl::Status SchedulerClient::Ended(const grpc::Status& status) {
  absl::Status ended = rpc::FromGrpc(status);
  if (rpc::IsRetryable(ended)) channel_.Failed();
  return ended;
}

absl::StatusOr<wire::GetStatusReply> SchedulerClient::GetStatus(absl::Duration timeout) {
  wire::GetStatusReply reply;
  const auto context = rpc::ContextWithTimeout(timeout);
  const absl::Status status = Ended(stub()->GetStatus(context.get(), {}, &reply));
  if (!status.ok()) return status;
  return reply;
}

absl::Status SchedulerClient::StopJob(const std::string& reason, bool failed) {
  wire::StopJobRequest request;
  request.set_reason(reason);
  request.set_failed(failed);
  wire::StopJobReply reply;
  return Ended(stub()->StopJob(rpc::ContextWithTimeout(kOrderTimeout).get(), request, &reply));
}

absl::StatusOr<uint64_t> SchedulerClient::Checkpoint(const std::string& reason) {
  wire::CheckpointRequest request;
  request.set_reason(reason);
  wire::CheckpointReply reply;
  const absl::Status status = Ended(stub()->Checkpoint(rpc::ContextWithTimeout(kOrderTimeout).get(), request, &reply));
  if (!status.ok()) return status;
  return reply.checkpoint();
}

absl::StatusOr<uint32_t> SchedulerClient::ChangeServers(const wire::ChangeServersRequest& request) {
  wire::ChangeServersReply reply;
  const absl::Status status =
      Ended(stub()->ChangeServers(rpc::ContextWithTimeout(kOrderTimeout).get(), request, &reply));
  if (!status.ok()) return status;
  return reply.servers();
}

absl::Status SchedulerClient::ReportExit(uint64_t job, wire::MemberRole role, const std::string& name,
                                         const std::string& reason) {
  wire::ReportExitRequest request;
  request.set_job(job);
  request.set_role(role);
  request.set_name(name);
  request.set_reason(reason);
  request.set_announced(true);
  wire::ReportExitReply reply;
  return Ended(stub()->ReportExit(rpc::ContextWithTimeout(kOrderTimeout).get(), request, &reply));
}

}  // namespace slackline::cli
