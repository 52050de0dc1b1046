#include "cli/service/job_queue.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/base/byte_size.h"
#include "common/base/check.h"
#include "common/text/counted.h"
#include "common/text/utf8.h"

namespace slackline::cli {
namespace {

constexpr size_t kJobNameBytesMax = 200;
constexpr size_t kReasonMax = 500;
constexpr int kOverridesMax = 1000;
// Largest memory of a job. The sum of all running jobs fits into 64 bits.
constexpr uint64_t kMemoryBytesMax = uint64_t{1} << 50;

// Returns the beginning of a text, in UTF-8: protobuf does not read back a message with other bytes.
std::string Cut(const std::string& text) { return ValidText(text.substr(0, kReasonMax)); }

absl::Status RefusedOrder(const wire::ServiceJob& job, const std::string& what, const std::string& allowed) {
  return absl::FailedPreconditionError(
      absl::StrCat("job ", job.id(), " is ", StateName(job), ", and cannot be ", what, "; allowed are ", allowed));
}

QueueShare ShareOf(const wire::ServiceJob& job) {
  if (IsOnSlurm(job)) return {};
  return {1, job.needs().memory_bytes(), job.needs().gpus()};
}

QueueShare Plus(const QueueShare& a, const QueueShare& b) {
  return {a.jobs + b.jobs, a.memory_bytes + b.memory_bytes, a.gpus + b.gpus};
}

// Subtracts; a difference below 0 becomes 0.
QueueShare Minus(const QueueShare& a, const QueueShare& b) {
  return {a.jobs - std::min(a.jobs, b.jobs), a.memory_bytes - std::min(a.memory_bytes, b.memory_bytes),
          a.gpus - std::min(a.gpus, b.gpus)};
}

bool Holds(const QueueShare& free, const QueueShare& wanted) {
  return wanted.jobs <= free.jobs && wanted.memory_bytes <= free.memory_bytes && wanted.gpus <= free.gpus;
}

// Returns whether a limit, 0 for none, allows this much.
bool Allows(uint64_t limit, uint64_t wanted) { return limit == 0 || wanted <= limit; }

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

bool IsOnSlurm(const wire::ServiceJob& job) { return job.needs().place() == wire::JOB_ON_SLURM; }

bool LostOnSlurm(const wire::ServiceJob& job) { return IsOnSlurm(job) && job.losses() > 0; }

void JobQueue::Unlist(const wire::ServiceJob& job) {
  ended_.erase({job.ended_s(), job.id()});
  waiting_for_slurm_.erase(job.id());
  if (const auto level = waiting_.find(-job.priority()); level != waiting_.end()) {
    const auto alike = level->second.find(AskingAs(job));
    if (alike != level->second.end() && alike->second.erase(job.id()) > 0 && alike->second.empty()) {
      level->second.erase(alike);
    }
    if (level->second.empty()) waiting_.erase(level);
  }
  if (running_.erase(job.id()) == 0) return;
  used_ = Minus(used_, ShareOf(job));
  QueueShare& own = used_by_[job.owner()];
  own = Minus(own, ShareOf(job));
  if (own.jobs == 0) used_by_.erase(job.owner());
  for (const std::string& gpu : job.gpus()) taken_gpus_.erase(gpu);
}

void JobQueue::SetState(wire::ServiceJob& job, wire::ServiceJobState state) {
  Unlist(job);
  job.set_state(state);
  if (state != wire::SERVICE_JOB_RUNNING) job.clear_gpus();
  if (state == wire::SERVICE_JOB_QUEUED && IsOnSlurm(job)) waiting_for_slurm_.insert(job.id());
  if (state == wire::SERVICE_JOB_QUEUED && !IsOnSlurm(job)) waiting_[-job.priority()][AskingAs(job)].insert(job.id());
  // A stopped job is no surplus: its owner means to continue it.
  if (HasEnded(job) && state != wire::SERVICE_JOB_STOPPED) ended_.emplace(job.ended_s(), job.id());
  if (state != wire::SERVICE_JOB_RUNNING) return;
  running_.insert(job.id());
  used_ = Plus(used_, ShareOf(job));
  QueueShare& own = used_by_[job.owner()];
  own = Plus(own, ShareOf(job));
  taken_gpus_.insert(job.gpus().begin(), job.gpus().end());
}

void JobQueue::EndAs(wire::ServiceJob& job, wire::ServiceJobState state, double now_s) {
  Unlist(job);
  job.set_ended_s(now_s);
  SetState(job, state);
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

std::vector<uint64_t> JobQueue::Surplus(double before_s) const {
  std::vector<uint64_t> surplus;
  for (const auto& [ended_s, id] : ended_) {
    if (limits_.ended == 0 || ended_.size() - surplus.size() <= limits_.ended || ended_s >= before_s) break;
    surplus.push_back(id);
  }
  return surplus;
}

absl::StatusOr<wire::ServiceJob> JobQueue::Submit(const wire::SubmitRequest& request, double now_s) {
  const bool long_name = request.name().size() > kJobNameBytesMax;
  if (long_name || absl::StripAsciiWhitespace(request.name()).empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the job's name: found ", long_name ? "a longer one" : "blanks",
                                                   "; allowed are names of 1 to ", kJobNameBytesMax, " bytes"));
  }
  if (request.owner().size() > kJobNameBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the job's owner: found a longer name; allowed are names of at most ", kJobNameBytesMax, " bytes"));
  }
  if (request.priority() < -kPriorityMax || request.priority() > kPriorityMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the priority: found ", request.priority(), "; allowed is ", -kPriorityMax, " to ", kPriorityMax));
  }
  if (request.launch().job_yaml().empty() || request.launch().folder().empty()) {
    return absl::InvalidArgumentError("found a job without a job file or a working folder; allowed are jobs with both");
  }
  if (const std::string too_much = TooMuch(request.needs()); !too_much.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("job ", request.name(), ": ", too_much));
  }
  if (!wire::JobPlace_IsValid(request.needs().place())) {
    return absl::InvalidArgumentError(absl::StrCat("the job's place: found ", request.needs().place(),
                                                   "; allowed are those from ", wire::JobPlace_MIN, " to ",
                                                   wire::JobPlace_MAX));
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
  *job.mutable_needs() = request.needs();
  SetState(job, wire::SERVICE_JOB_QUEUED);
  job.set_submitted_s(now_s);
  *job.mutable_launch() = request.launch();
  return job;
}

absl::Status JobQueue::EndByOrder(wire::ServiceJob& job, const wire::OrderJobRequest& request, double now_s) {
  const bool cancel = request.order() == wire::JOB_ORDER_CANCEL;
  if (HasEnded(job)) return RefusedOrder(job, cancel ? "cancelled" : "stopped", "jobs that wait or run");
  // A repeated order without a reason does not take back the first one's.
  const bool repeated = job.order() == request.order() && request.reason().empty();
  const std::string reason = repeated                   ? job.reason()
                             : request.reason().empty() ? cancel ? "cancelled" : "stopped"
                                                        : Cut(request.reason());
  if (job.state() == wire::SERVICE_JOB_QUEUED && !LostOnSlurm(job)) {
    EndAs(job, cancel ? wire::SERVICE_JOB_CANCELLED : wire::SERVICE_JOB_STOPPED, now_s);
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
  if (const std::string too_much = TooMuch(job.needs()); !too_much.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("job ", job.id(), ": ", too_much));
  }
  if (job.overrides_size() + request.overrides_size() > kOverridesMax) {
    return absl::InvalidArgumentError(absl::StrCat("found ", job.overrides_size() + request.overrides_size(),
                                                   " settings of all resumes; allowed are ", kOverridesMax));
  }
  SetState(job, wire::SERVICE_JOB_QUEUED);
  job.clear_ended_s();
  job.clear_reason();
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

std::vector<std::string> JobQueue::FreeGpus() const {
  std::vector<std::string> free;
  for (const std::string& gpu : limits_.gpus) {
    if (!taken_gpus_.contains(gpu)) free.push_back(gpu);
  }
  return free;
}

QueueShare JobQueue::Free() const {
  constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
  const uint64_t memory = limits_.memory_bytes == 0 ? kNoLimit : limits_.memory_bytes;
  QueueShare free = Minus({limits_.jobs, memory, 0}, used_);
  free.gpus = FreeGpus().size();
  return free;
}

std::string JobQueue::TooMuch(const wire::JobNeeds& needs) const {
  if (needs.place() == wire::JOB_ON_SLURM) {
    if (needs.gpus() == 0 && needs.memory_bytes() == 0) return "";
    return "it asks for GPUs or memory of the service, and is to run on SLURM; allowed are options for sbatch, as "
           "--sbatch=--gpus-per-node=2";
  }
  if (needs.gpus() > 0 && limits_.gpus.empty()) {
    return absl::StrCat("it asks for ", Counted(needs.gpus(), "GPU"),
                        ", and the service hands out none; start it with --gpus");
  }
  if (needs.gpus() > limits_.gpus.size()) {
    return absl::StrCat("it asks for ", Counted(needs.gpus(), "GPU"), "; allowed are ", limits_.gpus.size(),
                        ", those of the service (--gpus)");
  }
  if (!Allows(limits_.owner_gpus, needs.gpus())) {
    return absl::StrCat("it asks for ", Counted(needs.gpus(), "GPU"), "; allowed are ", limits_.owner_gpus,
                        " to an owner (--owner-gpus-max)");
  }
  if (needs.memory_bytes() > kMemoryBytesMax) {
    return absl::StrCat("it asks for ", needs.memory_bytes(), " bytes of memory; allowed are ", kMemoryBytesMax);
  }
  const bool fits = Allows(limits_.memory_bytes, needs.memory_bytes());
  const uint64_t allowed = fits ? limits_.owner_memory_bytes : limits_.memory_bytes;
  if (Allows(allowed, needs.memory_bytes())) return "";
  const bool alike = RenderBytes(needs.memory_bytes()) == RenderBytes(allowed);
  const auto text = [alike](uint64_t bytes) { return alike ? Counted(bytes, "byte") : RenderBytes(bytes); };
  return absl::StrCat("it asks for ", text(needs.memory_bytes()), " of memory; allowed are ", text(allowed),
                      fits ? " to an owner (--owner-memory-max)" : " of the service (--memory-max)");
}

std::string JobQueue::OwnerIsAtLimit(const wire::ServiceJob& job) const {
  const auto found = used_by_.find(job.owner());
  const QueueShare used = found == used_by_.end() ? QueueShare() : found->second;
  const QueueShare wanted = Plus(used, ShareOf(job));
  const std::string who = job.owner().empty() ? "its owner" : job.owner();
  if (!Allows(limits_.owner_jobs, wanted.jobs)) {
    return absl::StrCat(who, " runs ", used.jobs, " of ", limits_.owner_jobs, " jobs (--owner-jobs-max)");
  }
  if (job.needs().gpus() > 0 && !Allows(limits_.owner_gpus, wanted.gpus)) {
    return absl::StrCat("it asks for ", Counted(job.needs().gpus(), "GPU"), ", and ", who, " has ", used.gpus, " of ",
                        limits_.owner_gpus, " (--owner-gpus-max)");
  }
  if (job.needs().memory_bytes() > 0 && !Allows(limits_.owner_memory_bytes, wanted.memory_bytes)) {
    return absl::StrCat("it asks for ", RenderBytes(job.needs().memory_bytes()), " of memory, and ", who, " has ",
                        RenderBytes(used.memory_bytes), " of ", RenderBytes(limits_.owner_memory_bytes),
                        " (--owner-memory-max)");
  }
  return "";
}

bool JobQueue::IsAllowed(const wire::ServiceJob& job) const {
  return TooMuch(job.needs()).empty() && OwnerIsAtLimit(job).empty();
}

QueueShare JobQueue::FreeBeside(const wire::ServiceJob* kept_for) const {
  if (kept_for == nullptr) return Free();
  return Minus(Free(), {0, kept_for->needs().memory_bytes(), kept_for->needs().gpus()});
}

std::optional<uint64_t> JobQueue::Next() {
  if (!waiting_for_slurm_.empty()) return *waiting_for_slurm_.begin();
  const wire::ServiceJob* kept_for = Find(kept_for_);
  const bool waits = kept_for != nullptr && kept_for->state() == wire::SERVICE_JOB_QUEUED;
  if (!waits || !IsAllowed(*kept_for)) kept_for = nullptr;
  kept_for_ = kept_for == nullptr ? 0 : kept_for->id();
  if (Free().jobs == 0) return std::nullopt;
  for (const auto& [minus_priority, jobs] : waiting_) {
    const bool keeps = kept_for != nullptr && -kept_for->priority() <= minus_priority;
    if (keeps && Holds(Free(), ShareOf(*kept_for))) return kept_for_;
    // Pairs: number of running jobs of the owner, and the first of the owner's jobs that ask alike.
    std::vector<std::pair<size_t, uint64_t>> order;
    for (const auto& [asking, ids] : jobs) {
      const wire::ServiceJob& first = jobs_.at(*ids.begin());
      const auto used = used_by_.find(first.owner());
      if (IsAllowed(first)) order.emplace_back(used == used_by_.end() ? 0 : used->second.jobs, first.id());
    }
    std::sort(order.begin(), order.end());
    for (const auto& [running, id] : order) {
      const wire::ServiceJob& job = jobs_.at(id);
      const bool before = kept_for == nullptr || job.priority() > kept_for->priority();
      if (Holds(before ? Free() : FreeBeside(kept_for), ShareOf(job))) return id;
      if (!before) continue;
      kept_for = &job;
      kept_for_ = id;
    }
  }
  return std::nullopt;
}

std::string JobQueue::OtherGpus(uint64_t id) const {
  const wire::ServiceJob& job = jobs_.at(id);
  if (IsOnSlurm(job)) return "";
  const bool sees_all = !job.gpus_given();
  const bool known = std::all_of(job.gpus().begin(), job.gpus().end(), [this](const std::string& gpu) {
    return std::find(limits_.gpus.begin(), limits_.gpus.end(), gpu) != limits_.gpus.end();
  });
  if (limits_.gpus.empty() ? job.gpus().empty() : known && !sees_all) return "";
  return absl::StrCat("job ", id, " was begun by a service with other --gpus and may use GPUs that other jobs get; ",
                      "change --gpus when no job runs");
}

std::string JobQueue::WhyItWaits(uint64_t id) const {
  const wire::ServiceJob& job = jobs_.at(id);
  if (IsOnSlurm(job)) return "begins soon";
  if (std::string why = TooMuch(job.needs()); !why.empty()) return why;
  if (std::string why = OwnerIsAtLimit(job); !why.empty()) return why;
  const QueueShare free = Free(), wanted = ShareOf(job);
  if (free.jobs == 0) return absl::StrCat(used_.jobs, " of ", limits_.jobs, " jobs run");
  if (wanted.gpus > free.gpus) {
    return absl::StrCat("it asks for ", Counted(wanted.gpus, "GPU"), ", and ", free.gpus, " of ", limits_.gpus.size(),
                        " are free");
  }
  if (wanted.memory_bytes > free.memory_bytes) {
    return absl::StrCat("it asks for ", RenderBytes(wanted.memory_bytes), " of memory, and ",
                        RenderBytes(free.memory_bytes), " of ", RenderBytes(limits_.memory_bytes), " are free");
  }
  const wire::ServiceJob* const kept_for = kept_for_ == id ? nullptr : Find(kept_for_);
  const bool before = kept_for == nullptr || job.priority() > kept_for->priority();
  if (before || Holds(FreeBeside(kept_for), wanted)) return "begins soon";
  return absl::StrCat("what it asks for is kept for job ", kept_for_);
}

const wire::ServiceJob& JobQueue::Begin(uint64_t id, double now_s, uint64_t checkpoint, uint64_t events) {
  wire::ServiceJob& job = jobs_.at(id);
  SLACKLINE_CHECK(job.state() == wire::SERVICE_JOB_QUEUED);
  const std::vector<std::string> free = FreeGpus();
  const size_t gpus = std::min<size_t>(job.needs().gpus(), free.size());
  job.mutable_gpus()->Add(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(gpus));
  job.set_gpus_given(!limits_.gpus.empty());
  SetState(job, wire::SERVICE_JOB_RUNNING);
  if (!LostOnSlurm(job)) job.set_order(wire::JOB_ORDER_NONE);
  if (job.order() == wire::JOB_ORDER_NONE) job.clear_reason();
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
  job.set_told(false);
  if (lost && IsOnSlurm(job)) {
    // SLURM still has the job, which may have an order to end.
    job.set_losses(job.losses() + 1);
    SetState(job, wire::SERVICE_JOB_QUEUED);
    if (order == wire::JOB_ORDER_NONE)
      job.set_reason(absl::StrCat("the process that follows it is gone: ", Cut(end.reason)));
    return job;
  }
  job.set_order(wire::JOB_ORDER_NONE);
  if (end.state == wire::SERVICE_JOB_DONE) {
    EndAs(job, wire::SERVICE_JOB_DONE, now_s);
  } else if (order == wire::JOB_ORDER_CANCEL) {
    EndAs(job, wire::SERVICE_JOB_CANCELLED, now_s);
  } else if (order == wire::JOB_ORDER_STOP && lost) {
    // The run was killed before it recorded that it stopped.
    EndAs(job, wire::SERVICE_JOB_STOPPED, now_s);
  } else if (!lost) {
    EndAs(job, end.state, now_s);
  } else if (job.losses() < kLossesMax) {
    job.set_losses(job.losses() + 1);
    SetState(job, wire::SERVICE_JOB_QUEUED);
    job.set_reason(absl::StrCat("its processes were gone: ", Cut(end.reason)));
    return job;
  } else {
    EndAs(job, wire::SERVICE_JOB_FAILED, now_s);
  }
  // A job that ended as ordered keeps the order's reason.
  const bool as_ordered = job.state() == wire::SERVICE_JOB_STOPPED || job.state() == wire::SERVICE_JOB_CANCELLED;
  if (order == wire::JOB_ORDER_NONE || !as_ordered) {
    job.set_reason(lost ? absl::StrCat("its processes were gone ", kLossesMax + 1, " times without a new checkpoint: ",
                                       Cut(end.reason), "; to continue: slackline resume ", id)
                        : Cut(end.reason));
  }
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
