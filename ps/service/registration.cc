#include "ps/service/registration.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/protocol_version.h"
#include "common/log/logging.h"
#include "common/log/silence_notice.h"
#include "common/process/host_name.h"
#include "common/rpc/channel.h"
#include "ps/base/readable.h"

namespace slackline::ps {

Registration::Registration(RegistrationOptions options, Sequencer& sequencer)
    : options_(std::move(options)),
      sequencer_(sequencer),
      scheduler_(options_.scheduler, options_.protection),
      thread_([this] { Run(); }) {}

Registration::~Registration() {
  stop_.Raise();
  sequencer_.WakeUp();
  thread_.join();
}

void Registration::Run() {
  absl::Status status = Register();
  if (status.ok()) status = BeatUntilEnd();
  if (Stopped(absl::ZeroDuration())) return;
  if (status.ok()) log::Info("this server leaves: ", leave_reason_);
  options_.on_end(status);
}

absl::Status Registration::Register() {
  wire::RegisterServerRequest request;
  request.set_name(options_.name);
  request.set_address(options_.address);
  request.set_job_fingerprint(options_.job_fingerprint);
  request.set_metrics_address(options_.metrics_address);
  SetProtocol(request);
  *request.mutable_local() = options_.local;
  request.mutable_local()->set_machine(HostName());
  const absl::Time give_up = time_.Now() + options_.timeouts.startup;
  SilenceNotice notice(absl::StrCat("the scheduler at ", options_.scheduler), time_.Now(), options_.timeouts.startup);
  absl::Duration back_off = options_.timeouts.heartbeat / 3;
  while (true) {
    auto context = rpc::ContextWithTimeout(options_.timeouts.worker_dead());
    const absl::Status status = rpc::FromGrpc(stub()->RegisterServer(context.get(), request, &self_));
    if (status.ok()) break;
    // Somebody else's scheduler stays that.
    if (!rpc::IsRetryable(status) || rpc::IsMistrust(status) || time_.Now() >= give_up) {
      return absl::Status(status.code(), absl::StrCat("the scheduler at ", options_.scheduler,
                                                      " did not take this server: ", scheduler_.Why(status)));
    }
    scheduler_.Failed();
    notice.NoAnswer(time_.Now(), scheduler_.Why(status));
    if (Stopped(back_off)) return absl::CancelledError("stopped");
    back_off = std::min(2 * back_off, options_.timeouts.notice());
  }
  const std::string scheduler = absl::StrCat("the scheduler at ", options_.scheduler);
  if (absl::Status speaks = CheckProtocol(scheduler, ProtocolOf(self_)); !speaks.ok()) return speaks;
  log::Info("is server ", self_.server(), " (incarnation ", self_.incarnation(), ") at ", options_.address);
  absl::Status known =
      sequencer_.SetIdentity({JobId(self_.job()), ServerId(self_.server()), Incarnation(self_.incarnation())});
  if (known.ok() && options_.on_registered) options_.on_registered();
  return known;
}

absl::Status Registration::BeatUntilEnd() {
  absl::Time heard = time_.Now();
  absl::Duration wait = options_.timeouts.heartbeat;
  while (true) {
    // A death between a first snapshot and the heartbeat that tells of it would cost the run.
    sequencer_.AwaitNews(wait);
    if (Stopped(absl::ZeroDuration())) break;
    const absl::Time begin = time_.Now();
    const absl::StatusOr<bool> leave = Beat();
    wait = options_.timeouts.heartbeat;
    if (leave.ok()) {
      if (*leave) return absl::OkStatus();
      heard = time_.Now();
      continue;
    }
    // What the call has waited is part of it, or one that is lost would be a silence of 3 T.
    wait = std::max(absl::ZeroDuration(), wait - (time_.Now() - begin));
    if (!rpc::IsRetryable(leave.status())) {
      return absl::Status(leave.status().code(),
                          absl::StrCat("the scheduler has put this server out: ", leave.status().message()));
    }
    scheduler_.Failed();
    const absl::Duration silent = time_.Now() - heard;
    if (silent >= options_.scheduler_silence_max) {
      return absl::UnavailableError(
          absl::StrCat("the scheduler at ", options_.scheduler, " has not answered for ", Readable(silent),
                       " (allowed are ", Readable(options_.scheduler_silence_max), "): ", leave.status().message()));
    }
  }
  return absl::CancelledError("stopped");
}

absl::StatusOr<bool> Registration::Beat() {
  // A busy sequencer is no reason to fall silent: the last numbers go out again.
  if (const absl::StatusOr<ShardTable::Progress> now = sequencer_.progress(); now.ok()) progress_ = *now;
  wire::HeartbeatRequest request;
  request.set_job(self_.job());
  request.set_role(wire::MEMBER_ROLE_SERVER);
  request.set_member(self_.server());
  request.set_incarnation(self_.incarnation());
  *request.mutable_server() = progress_.report;
  request.mutable_server()->set_resident_bytes(ResidentBytes());
  // One that is lost must not be what a server with a backup, or the backup, is taken for dead by, after 3 T.
  const bool soon = progress_.report.backup().in_step() || progress_.follows;
  auto context = rpc::ContextWithTimeout(soon ? options_.timeouts.heartbeat : options_.timeouts.server_dead());
  wire::HeartbeatReply reply;
  const absl::Status status = rpc::FromGrpc(stub()->Heartbeat(context.get(), request, &reply));
  if (!status.ok()) return status;
  if (reply.checkpoint_heard() != 0) sequencer_.CheckpointHeard(reply.checkpoint_heard());
  if (reply.backup_released() != 0) sequencer_.BackupReleased(reply.backup_released());
  if (reply.job_ended()) job_ended_ = true;
  leave_reason_ = reply.leave_reason();
  return reply.leave();
}

}  // namespace slackline::ps
