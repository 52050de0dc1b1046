// Servers: outcomes of calls to them, and changes of which servers there are.
#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/control/controller.h"
#include "scheduler/control/job_view.h"

namespace slackline::scheduler {

absl::StatusOr<wire::HeartbeatReply> Controller::SpareHeartbeat(const wire::HeartbeatRequest& request, absl::Time now) {
  const ServerId id(request.member());
  job_.Spares().at(id).heard = now;
  wire::HeartbeatReply reply;
  reply.set_generation(job_.moves.PublicGeneration());
  reply.set_leave(now - job_.phase.stopping >= config_.timeouts.server_dead());
  if (reply.leave()) reply.set_leave_reason(job_.phase.reason);
  // A server without shards has nothing to keep for a last checkpoint.
  reply.set_job_ended(job_.Replicated() && job_.phase.Ended());
  if (request.leaving()) course_.DropSpare(id, absl::StrCat("left: ", request.leaving_reason()));
  return reply;
}

absl::StatusOr<wire::ChangeServersReply> Controller::ChangeServers(const wire::ChangeServersRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (job_.phase.Ended()) return absl::FailedPreconditionError(absl::StrCat("the job has ended: ", job_.phase.reason));
  if (job_.phase.state == wire::JOB_STARTING) {
    return absl::FailedPreconditionError(
        absl::StrCat("servers change while training goes on; the job ", JobView(job_).Missing()));
  }
  return job_.moves.Change(request);
}

void Controller::TakeRefused(ServerRef server, const wire::TakeShardsRequest& request, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  job_.moves.Refused(server.server, request.move(), status, job_.Facts());
}

void Controller::Installed(ServerRef server, const wire::InstallShardsReply& reply) {
  absl::MutexLock lock(&mutex_);
  auto found = job_.membership.servers().find(server.server);
  if (found == job_.membership.servers().end() || found->second.incarnation != server.incarnation) return;
  if (found->second.state != ServerState::kLive) return;  // it was given up meanwhile
  if (job_.backups.Promoting(server.server)) return;      // that was what it was told before
  job_.shards.SetInstalled(server.server);
  if (const auto lost = job_.servers.lost_since.find(server.server); lost != job_.servers.lost_since.end()) {
    job_.events.Add(absl::StrCat(Called("server", found->second.name),
                                 job_.Replicated() ? " has taken over, " : " goes on from its snapshots, ",
                                 Readable(time_.Now() - lost->second),
                                 job_.Replicated() ? " after the other was found dead" : " after it died"));
    job_.servers.lost_since.erase(lost);
    course_.Restored(server.server, reply);
  }
  job_.moves.Installed(server.server, job_.Facts());
  course_.BeginIfReady();
}

void Controller::MembersInstalled(ServerRef server, const wire::SetMembersReply& reply) {
  absl::MutexLock lock(&mutex_);
  // A reply for the shards that the server had before does not count: it must take the set with its present ones.
  if (reply.generation() != 0 && Generation(reply.generation()) != job_.shards.GenerationOf(server.server)) return;
  MembershipActions actions;
  job_.membership.MembersInstalled(server.server, server.incarnation, Epoch(reply.epoch()),
                                   Clock64(reply.clock_min_largest()), actions);
  course_.Apply(actions);
}

void Controller::Stopped(ServerRef server) {
  absl::MutexLock lock(&mutex_);
  if (job_.IsSpare(server)) {
    job_.Spares().erase(server.server);
  } else if (const auto member = job_.membership.servers().find(server.server);
             member != job_.membership.servers().end() && member->second.incarnation == server.incarnation) {
    job_.servers.stopped.insert(server.server);
  } else {
    job_.calls.Disconnect(server);  // drained
  }
}

void Controller::Refused(ServerRef server, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (job_.IsSpare(server)) return course_.DropSpare(server.server, std::string(status.message()));
  auto found = job_.membership.servers().find(server.server);
  if (found == job_.membership.servers().end() || found->second.incarnation != server.incarnation) return;
  // A server that refuses calls cannot be told to stop, so nobody waits for it.
  job_.servers.stopped.insert(server.server);
  if (found->second.state != ServerState::kLive && !job_.phase.Ended()) return;  // it was given up meanwhile
  course_.End(wire::JOB_FAILED, absl::StrCat(Called("server", found->second.name),
                                             " refused a call of the scheduler: ", std::string(status.message())));
}

}  // namespace slackline::scheduler
