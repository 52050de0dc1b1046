// Workers register here.
#include "absl/strings/str_cat.h"
#include "common/job/push_samples.h"
#include "common/member_name.h"
#include "scheduler/control/controller.h"

namespace slackline::scheduler {
namespace {

WorkerOrigin OriginOf(const wire::RegisterWorkerRequest& request) {
  return {request.instance(), request.pid(),   request.host(),
          request.topology(), request.group(), request.metrics_address()};
}

bool IsThere(WorkerState state) { return state != WorkerState::kLeft && state != WorkerState::kDead; }

}  // namespace

absl::StatusOr<std::optional<WorkerId>> Controller::PreviousOf(const wire::RegisterWorkerRequest& request,
                                                               absl::Time now) {
  // A number from another scheduler's life, given after the state was saved, may be somebody else's here, or nobody's.
  const auto earlier = job_.membership.workers().find(WorkerId(request.worker()));
  std::optional<WorkerId> own, other;
  if (earlier != job_.membership.workers().end() && earlier->second.incarnation == Incarnation(request.incarnation())) {
    own = earlier->first;
  }
  const WorkerOrigin origin = OriginOf(request);
  for (const auto& [id, worker] : job_.membership.workers()) {
    if (worker.name != request.name() || !IsThere(worker.state) || id == own) continue;
    const Kinship kinship = KinshipOf(job_.workers.origins.at(id), origin);
    // The reply to its first registration was lost: without this the process would count twice.
    if (kinship == Kinship::kSame && !own) return id;
    // A worker with a lease may be silent and live: the newcomer is a worker besides it.
    const bool excused = now < worker.excused_until && now - worker.heard > config_.timeouts.server_dead();
    if (kinship == Kinship::kOther && !excused) other = id;
  }
  if (!other) return own;
  const absl::Time heard = job_.membership.workers().at(*other).heard;
  const absl::Status free = job_.workers.claims.Ask({*other, job_.workers.origins.at(*other), heard}, origin,
                                                    Called("worker", request.name()), now);
  if (!free.ok()) return free;
  return own ? own : other;
}

absl::StatusOr<wire::RegisterWorkerReply> Controller::RegisterWorker(const wire::RegisterWorkerRequest& request) {
  if (const std::string mistake = MemberNameMistake(request.name()); !mistake.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("a worker: ", mistake));
  }
  for (const std::string& text : {request.name(), request.host(), request.topology(), request.metrics_address()}) {
    if (absl::Status fits = CheckLength("a worker", text); !fits.ok()) return fits;
  }
  const std::string who = Called("worker", request.name());
  if (absl::Status speaks = CheckProtocol(who, ProtocolOf(request)); !speaks.ok()) return speaks;
  if (absl::Status same = CheckFingerprint(who, request.job_fingerprint()); !same.ok()) return same;
  if (absl::Status known = CheckGroup(config_.job, request.group()); !known.ok()) return known;

  absl::MutexLock lock(&mutex_);
  if (job_.phase.Ended()) return absl::FailedPreconditionError(absl::StrCat("the job has ended: ", job_.phase.reason));
  if (absl::Status same = LearnModel(request); !same.ok()) return same;
  const absl::Time now = time_.Now();
  const absl::StatusOr<std::optional<WorkerId>> previous = PreviousOf(request, now);
  if (absl::IsAlreadyExists(previous.status())) job_.events.Add(absl::StrCat("warning: ", previous.status().message()));
  if (!previous.ok()) return previous.status();
  if (auto known = job_.membership.workers().find(previous->value_or(WorkerId()));
      known != job_.membership.workers().end()) {
    course_.WorkerGone({known->first, known->second.incarnation});
  }
  MembershipActions actions;
  absl::StatusOr<Membership::Registered> registered =
      job_.membership.RegisterWorker(request.name(), *previous, now, actions);
  if (!registered.ok()) return registered.status();
  const WorkerId id(registered->id);
  job_.workers.origins[id] = OriginOf(request);
  job_.workers.claims.Drop(id);
  job_.events.Add(absl::StrCat(who, *previous ? " comes back" : " is there"));
  NoteProtocol(who, ProtocolOf(request));
  course_.Place();
  course_.Apply(actions);

  wire::RegisterWorkerReply reply;
  reply.set_job(config_.id.value());
  SetProtocol(reply);
  reply.set_worker(registered->id);
  reply.set_incarnation(registered->incarnation.value());
  return reply;
}

}  // namespace slackline::scheduler
