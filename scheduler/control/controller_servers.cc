// Servers: how they join, come back, hand shards to one another, and leave.
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/control/controller.h"

namespace slackline::scheduler {

// --- Spares -----------------------------------------------------------------------------------------------------

bool Controller::IsSpare(ServerRef server) const {
  const auto found = Spares().find(server.server);
  return found != Spares().end() && found->second.incarnation == server.incarnation;
}

absl::StatusOr<ServerRef> Controller::RegisterSpare(const wire::RegisterServerRequest& request) {
  if (!Replicated()) return moves_.Register(request, Facts());
  absl::StatusOr<ServerRef> backup = backups_.Register(request, Facts());
  if (backup.ok()) BeginIfReady();
  return backup;
}

absl::StatusOr<wire::HeartbeatReply> Controller::SpareHeartbeat(const wire::HeartbeatRequest& request, absl::Time now) {
  const ServerId id(request.member());
  Spares().at(id).heard = now;
  wire::HeartbeatReply reply;
  reply.set_generation(moves_.PublicGeneration());
  reply.set_leave(now - stopping_ >= config_.timeouts.server_dead());
  if (reply.leave()) reply.set_leave_reason(reason_);
  // A server without shards has nothing to keep for a last checkpoint.
  reply.set_job_ended(Replicated() && Ended());
  if (request.leaving()) DropSpare(id, absl::StrCat("left: ", request.leaving_reason()));
  return reply;
}

void Controller::DropSpare(ServerId server, const std::string& why) {
  if (Replicated()) return backups_.Drop(server, why, Facts());
  moves_.Drop(server, why, Facts());
}

// --- Moves ------------------------------------------------------------------------------------------------------

absl::StatusOr<wire::ChangeServersReply> Controller::ChangeServers(const wire::ChangeServersRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (Ended()) return absl::FailedPreconditionError(absl::StrCat("the job has ended: ", reason_));
  if (state_ == wire::JOB_STARTING) {
    return absl::FailedPreconditionError(absl::StrCat("servers change while training goes on; the job ", Missing()));
  }
  return moves_.Change(request);
}

void Controller::TakeRefused(ServerRef server, const wire::TakeShardsRequest& request, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  moves_.Refused(server.server, request.move(), status, Facts());
}

void Controller::ShardsChanged(ServerId server, const MembershipActions& actions) {
  SendInstall(server);  // before the members
  Apply(actions);
}

void Controller::GotShards(ServerId server, ServerId from) {
  server_progress_[server].set_seeded(true);
  if (durable_.contains(from)) durable_.insert(server);
}

void Controller::ServerLeft(ServerId server, const MembershipActions& actions) {
  for (auto* set : {&durable_, &stopped_}) set->erase(server);
  server_progress_.erase(server);
  lost_since_.erase(server);
  Apply(actions);
}

}  // namespace slackline::scheduler
