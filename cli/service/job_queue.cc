#include "cli/service/job_queue.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/text/utf8.h"

namespace slackline::cli {
namespace {

constexpr size_t kJobNameBytesMax = 200;
constexpr size_t kReasonMax = 500;
constexpr int kOverridesMax = 1000;

// Returns the beginning of a text, in UTF-8: protobuf does not read back a message with other bytes.
std::string Cut(const std::string& text) { return ValidText(text.substr(0, kReasonMax)); }

absl::Status RefusedOrder(const wire::ServiceJob& job, const std::string& what, const std::string& allowed) {
  return absl::FailedPreconditionError(
      absl::StrCat("job ", job.id(), " is ", StateName(job), ", and cannot be ", what, "; allowed are ", allowed));
}

}  // namespace

std::string StateName(const wire::ServiceJob& job) {
  switch (job.state()) {
    case wire::SERVICE_JOB_QUEUED:
      return "queued";
    case wire::SERVICE_JOB_RUNNING:
      return job.order() == wire::JOB_ORDER_STOP     ? "stopping"
             : job.order() == wire::JOB_ORDER_CANCEL ? "cancelling"
                                                     : "running";
    case wire::SERVICE_JOB_DONE:
      return "done";
    case wire::SERVICE_JOB_FAILED:
      return "failed";
    case wire::SERVICE_JOB_STOPPED:
      return "stopped";
    case wire::SERVICE_JOB_CANCELLED:
      return "cancelled";
    default:
      return "unknown";
  }
}

absl::Status NoSuchJob(uint64_t id) {
  return absl::NotFoundError(absl::StrCat("found no job ", id, "; `slackline jobs` lists the jobs"));
}

bool HasEnded(const wire::ServiceJob& job) {
  return job.state() != wire::SERVICE_JOB_QUEUED && job.state() != wire::SERVICE_JOB_RUNNING;
}

void JobQueue::Unlist(const wire::ServiceJob& job) {
  waiting_.erase({-job.priority(), job.id()});
  running_.erase(job.id());
}

void JobQueue::SetState(wire::ServiceJob& job, wire::ServiceJobState state) {
  Unlist(job);
  job.set_state(state);
  if (state == wire::SERVICE_JOB_QUEUED) waiting_.emplace(-job.priority(), job.id());
  if (state == wire::SERVICE_JOB_RUNNING) running_.insert(job.id());
}

void JobQueue::Restore(const wire::ServiceJob& job) {
  last_ = std::max(last_, job.id());
  wire::ServiceJob& kept = jobs_[job.id()];
  Unlist(kept);
  kept = job;
  SetState(kept, job.state());
}

void JobQueue::Remove(uint64_t id) {
  const auto job = jobs_.find(id);
  if (job == jobs_.end()) return;
  Unlist(job->second);
  jobs_.erase(job);
}

absl::StatusOr<wire::ServiceJob> JobQueue::Submit(const wire::SubmitRequest& request, double now_s) {
  const bool long_name = request.name().size() > kJobNameBytesMax;
  if (long_name || absl::StripAsciiWhitespace(request.name()).empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the job's name: found ", long_name ? "a longer one" : "blanks",
                                                   "; allowed are names of 1 to ", kJobNameBytesMax, " bytes"));
  }
  if (request.priority() < -kPriorityMax || request.priority() > kPriorityMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the priority: found ", request.priority(), "; allowed is ", -kPriorityMax, " to ", kPriorityMax));
  }
  if (request.launch().job_yaml().empty() || request.launch().folder().empty()) {
    return absl::InvalidArgumentError("found a job without a job file or a working folder; allowed are jobs with both");
  }
  if (jobs_.size() >= kJobsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the service keeps ", jobs_.size(), " jobs; allowed are ", kJobsMax, ": remove ended ones"));
  }
  wire::ServiceJob& job = jobs_[++last_];
  job.set_id(last_);
  job.set_name(request.name());
  job.set_owner(Cut(request.owner()));
  job.set_priority(request.priority());
  SetState(job, wire::SERVICE_JOB_QUEUED);
  job.set_submitted_s(now_s);
  *job.mutable_launch() = request.launch();
  return job;
}

absl::Status JobQueue::EndByOrder(wire::ServiceJob& job, const wire::OrderJobRequest& request, double now_s) {
  const bool cancel = request.order() == wire::JOB_ORDER_CANCEL;
  if (HasEnded(job)) return RefusedOrder(job, cancel ? "cancelled" : "stopped", "jobs that wait or run");
  const std::string reason = request.reason().empty() ? cancel ? "cancelled" : "stopped" : Cut(request.reason());
  if (job.state() == wire::SERVICE_JOB_QUEUED) {
    SetState(job, cancel ? wire::SERVICE_JOB_CANCELLED : wire::SERVICE_JOB_STOPPED);
    job.set_ended_s(now_s);
    job.set_reason(reason);
    return absl::OkStatus();
  }
  // A later order to stop does not take back an order to cancel.
  if (job.order() != wire::JOB_ORDER_CANCEL) job.set_order(request.order());
  job.set_reason(reason);
  return absl::OkStatus();
}

absl::Status JobQueue::Resume(wire::ServiceJob& job, const wire::OrderJobRequest& request) {
  if (!HasEnded(job)) return RefusedOrder(job, "resumed", "jobs that have ended");
  if (job.overrides_size() + request.overrides_size() > kOverridesMax) {
    return absl::InvalidArgumentError(absl::StrCat("found ", job.overrides_size() + request.overrides_size(),
                                                   " settings of all resumes; allowed are ", kOverridesMax));
  }
  SetState(job, wire::SERVICE_JOB_QUEUED);
  job.clear_reason();
  job.clear_ended_s();
  job.set_losses(0);
  job.mutable_overrides()->MergeFrom(request.overrides());
  return absl::OkStatus();
}

absl::StatusOr<wire::ServiceJob> JobQueue::Order(const wire::OrderJobRequest& request, double now_s) {
  const auto found = jobs_.find(request.id());
  if (found == jobs_.end()) {
    return NoSuchJob(request.id());
  }
  if (request.overrides_size() > 0 && request.order() != wire::JOB_ORDER_RESUME) {
    return absl::InvalidArgumentError("found settings; allowed are settings for a job that is resumed");
  }
  wire::ServiceJob& job = found->second;
  absl::Status done = absl::OkStatus();
  switch (request.order()) {
    case wire::JOB_ORDER_STOP:
    case wire::JOB_ORDER_CANCEL:
      done = EndByOrder(job, request, now_s);
      break;
    case wire::JOB_ORDER_RESUME:
      done = Resume(job, request);
      break;
    case wire::JOB_ORDER_REMOVE:
      if (!HasEnded(job)) done = RefusedOrder(job, "removed", "jobs that have ended");
      break;
    default:
      done = absl::InvalidArgumentError(absl::StrCat("found order ", request.order(), "; allowed are those from ",
                                                     wire::JOB_ORDER_STOP, " to ", wire::JOB_ORDER_REMOVE));
  }
  if (!done.ok()) return done;
  return job;
}

std::optional<uint64_t> JobQueue::Next() const {
  if (running_.size() >= running_max_ || waiting_.empty()) return std::nullopt;
  return waiting_.begin()->second;
}

const wire::ServiceJob& JobQueue::Begin(uint64_t id, double now_s, uint64_t checkpoint, uint64_t events) {
  wire::ServiceJob& job = jobs_.at(id);
  SLACKLINE_CHECK(job.state() == wire::SERVICE_JOB_QUEUED);
  SetState(job, wire::SERVICE_JOB_RUNNING);
  job.set_order(wire::JOB_ORDER_NONE);
  job.clear_reason();
  job.clear_ended_s();
  job.set_begun_s(now_s);
  job.set_begun_checkpoint(checkpoint);
  job.set_begun_events(events);
  job.set_told(false);
  job.set_begins(job.begins() + 1);
  return job;
}

const wire::ServiceJob& JobQueue::Tell(uint64_t id) {
  wire::ServiceJob& job = jobs_.at(id);
  job.set_told(true);
  return job;
}

const wire::ServiceJob& JobQueue::End(uint64_t id, const JobEnd& end, double now_s) {
  wire::ServiceJob& job = jobs_.at(id);
  SLACKLINE_CHECK(job.state() == wire::SERVICE_JOB_RUNNING);
  const wire::JobOrder order = job.order();
  const bool lost = end.state == wire::SERVICE_JOB_UNKNOWN;
  if (end.advanced) job.set_losses(0);
  job.set_order(wire::JOB_ORDER_NONE);
  job.set_told(false);
  if (end.state == wire::SERVICE_JOB_DONE) {
    SetState(job, wire::SERVICE_JOB_DONE);
  } else if (order == wire::JOB_ORDER_CANCEL) {
    SetState(job, wire::SERVICE_JOB_CANCELLED);
  } else if (order == wire::JOB_ORDER_STOP && lost) {
    // The run was killed before it recorded that it stopped.
    SetState(job, wire::SERVICE_JOB_STOPPED);
  } else if (!lost) {
    SetState(job, end.state);
  } else if (job.losses() < kLossesMax) {
    job.set_losses(job.losses() + 1);
    SetState(job, wire::SERVICE_JOB_QUEUED);
    job.set_reason(absl::StrCat("its processes were gone: ", Cut(end.reason)));
    return job;
  } else {
    SetState(job, wire::SERVICE_JOB_FAILED);
  }
  // A job that ended as ordered keeps the order's reason.
  const bool as_ordered = job.state() == wire::SERVICE_JOB_STOPPED || job.state() == wire::SERVICE_JOB_CANCELLED;
  if (order == wire::JOB_ORDER_NONE || !as_ordered) {
    job.set_reason(lost ? absl::StrCat("its processes were gone ", kLossesMax + 1, " times without a new checkpoint: ",
                                       Cut(end.reason), "; to continue: slackline resume ", id)
                        : Cut(end.reason));
  }
  job.set_ended_s(now_s);
  return job;
}

void JobQueue::SetFigures(uint64_t id, const wire::ServiceJobFigures& figures) {
  *jobs_.at(id).mutable_figures() = figures;
}

const wire::ServiceJob* JobQueue::Find(uint64_t id) const {
  const auto job = jobs_.find(id);
  return job == jobs_.end() ? nullptr : &job->second;
}

}  // namespace slackline::cli
