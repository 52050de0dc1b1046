#include "cli/run/scheduler_client.h"

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/time/clock.h"

namespace slackline::cli {
namespace {

// The scheduler is on this machine or near; an order that takes longer than this will not arrive.
constexpr absl::Duration kOrderTimeout = absl::Seconds(2);

// After a connection that was not made in time.
constexpr absl::Duration kConnectAgain = absl::Milliseconds(100);
// Of statuses.
constexpr char kConnectionMark[] = "slackline/connection";

// Nothing was sent yet. gRPC has words for that, depending on how far it got, but no code.
bool NotConnectedInTime(const absl::Status& status) {
  return absl::IsUnavailable(status) && (absl::StrContains(status.message(), "connection attempt timed out") ||
                                         absl::StrContains(status.message(), "tcp handshaker shutdown"));
}

}  // namespace

bool HasEnded(const wire::GetStatusReply& status) {
  return status.state() == wire::JOB_DONE || status.state() == wire::JOB_FAILED || status.state() == wire::JOB_STOPPED;
}

SchedulerClient::SchedulerClient(const std::string& address, const std::shared_ptr<const rpc::Protection>& protection)
    : channel_(address, protection) {}

std::string WhoSays(const std::string& address, const absl::Status& failed) {
  const bool connection = failed.GetPayload(kConnectionMark).has_value();
  return absl::StrCat(connection ? "no answer from the scheduler at " : "the scheduler at ", address,
                      connection ? ": " : " says: ", failed.message());
}

absl::Status SchedulerClient::Ended(const grpc::Status& status) {
  absl::Status ended = rpc::FromGrpc(status);
  // Where it is not up, nobody has said anything.
  const bool up = channel_.channel()->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
  if (!ended.ok() && (!up || absl::IsDeadlineExceeded(ended))) ended.SetPayload(kConnectionMark, absl::Cord());
  if (rpc::IsRetryable(ended)) channel_.Failed();
  return ended;
}

absl::Status SchedulerClient::Call(absl::Duration timeout,
                                   const std::function<grpc::Status(grpc::ClientContext*)>& call) {
  const absl::Time deadline = SteadyTime().Now() + timeout;
  while (true) {
    absl::Status ended = Ended(call(rpc::ContextWithTimeout(deadline - SteadyTime().Now()).get()));
    if (!NotConnectedInTime(ended) || SteadyTime().Now() + kConnectAgain >= deadline) return ended;
    absl::Notification().WaitForNotificationWithTimeout(kConnectAgain);
  }
}

absl::StatusOr<wire::GetStatusReply> SchedulerClient::GetStatus(absl::Duration timeout, bool full) {
  wire::GetStatusRequest request;
  request.set_full(full);
  wire::GetStatusReply reply;
  const absl::Status status =
      Call(timeout, [&](grpc::ClientContext* context) { return stub()->GetStatus(context, request, &reply); });
  if (!status.ok()) return status;
  return reply;
}

absl::Status SchedulerClient::StopJob(const std::string& reason, bool failed) {
  wire::StopJobRequest request;
  request.set_reason(reason);
  request.set_failed(failed);
  wire::StopJobReply reply;
  return Call(kOrderTimeout, [&](grpc::ClientContext* context) { return stub()->StopJob(context, request, &reply); });
}

absl::StatusOr<uint64_t> SchedulerClient::Checkpoint(const std::string& reason) {
  wire::CheckpointRequest request;
  request.set_reason(reason);
  wire::CheckpointReply reply;
  const absl::Status status =
      Call(kOrderTimeout, [&](grpc::ClientContext* context) { return stub()->Checkpoint(context, request, &reply); });
  if (!status.ok()) return status;
  return reply.checkpoint();
}

absl::StatusOr<uint32_t> SchedulerClient::ChangeServers(const wire::ChangeServersRequest& request) {
  wire::ChangeServersReply reply;
  const absl::Status status = Call(
      kOrderTimeout, [&](grpc::ClientContext* context) { return stub()->ChangeServers(context, request, &reply); });
  if (!status.ok()) return status;
  return reply.servers();
}

absl::Status SchedulerClient::ReportExit(uint64_t job, wire::MemberRole role, const std::string& name,
                                         const std::string& reason, bool announced) {
  wire::ReportExitRequest request;
  request.set_job(job);
  request.set_role(role);
  request.set_name(name);
  request.set_reason(reason);
  request.set_announced(announced);
  wire::ReportExitReply reply;
  return Call(kOrderTimeout,
              [&](grpc::ClientContext* context) { return stub()->ReportExit(context, request, &reply); });
}

}  // namespace slackline::cli
