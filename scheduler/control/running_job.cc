#include "scheduler/control/running_job.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/job/job_kinds.h"
#include "common/job/push_samples.h"
#include "common/job/script_optimizer.h"

namespace slackline::scheduler {
namespace {

// A worker leaves evaluations, which hold up everybody, to one that is this many times as fast.
constexpr double kMuchFaster = 2;

FixedJobFacts FixedFactsOf(const JobConfig& config) {
  return {.job = config.job, .id = config.id, .timeouts = config.timeouts, .keeps_state = config.keeps_state};
}

Membership::Config MembershipConfig(const JobConfig& config) {
  Membership::Config membership;
  membership.timeouts = config.timeouts;
  membership.servers = config.job.cluster().servers();
  // Nobody takes over from a server at once: its death costs what was pushed since the last snapshot, or the run. It is
  // believed as late as a worker's.
  membership.server_silence_max = config.timeouts.worker_dead();
  return membership;
}

BatchSizes BatchSizesOf(const job::Training& training) {
  BatchSizes::Config sizes;
  sizes.batch_size = training.batch_size();
  sizes.least = training.batch_size_min();
  sizes.balance = training.batch() == job::Training::BALANCE;
  return BatchSizes(sizes);
}

}  // namespace

RunningJob::RunningJob(const JobConfig& config, const TimeSource& time, ServerCalls& calls, ServerObserver& observer,
                       Moves::Owner& owner)
    : config(config),
      time(time),
      calls(calls),
      membership(MembershipConfig(config)),
      shards(config.id),
      workers(config.timeouts),
      stalls(config.timeouts),
      room(absl::Seconds(config.job.checkpoint().timeout_s())),
      batch_sizes(BatchSizesOf(config.job.training())),
      watch(config.job),
      events(config.tells_after_record),
      checkpoints({.job = config.job,
                   .id = config.id,
                   .folder = config.checkpoint_folder,
                   .last_number = config.checkpoint_number,
                   .servers_max = config.timeouts.server_dead()},
                  events, room),
      backups(FixedFactsOf(config), membership, shards, calls, observer, events),
      moves(FixedFactsOf(config), membership, shards, calls, observer, events, owner),
      evaluations(config.job),
      last_report(time.Now()) {
  phase.created = last_report;
}

bool RunningJob::Parting(absl::Time now) const {
  return phase.Ended() && (phase.end_kept || !config.keeps_state || now - phase.ended > config.timeouts.worker_dead());
}

bool RunningJob::IsSpare(ServerRef server) const {
  const auto found = Spares().find(server.server);
  return found != Spares().end() && found->second.incarnation == server.incarnation;
}

std::string RunningJob::NameOf(WorkerId worker) const {
  auto found = membership.workers().find(worker);
  return Called("worker", found != membership.workers().end() ? found->second.name : absl::StrCat(worker.value()));
}

bool RunningJob::Trains(const Membership::Worker& worker) const {
  return worker.state == WorkerState::kLive && phase.state == wire::JOB_TRAINING;
}

std::string RunningJob::Optimizer() const {
  const std::optional<job::Optimizer>& scripts = shards.layout().optimizer;
  if (!scripts && RunsScripts(config.job) && !ModelKnown()) return "";
  return OptimizerText(scripts ? *scripts : config.job.optimizer());
}

bool RunningJob::AllSeeded() const {
  for (const auto& [id, server] : membership.servers()) {
    // Shards that move have weights, whatever a server says that has none just now.
    if (shards.moved() && (!shards.Holds(id) || moves.Concerns(id))) continue;
    auto progress = servers.progress.find(id);
    if (progress == servers.progress.end() || !progress->second.seeded()) return false;
  }
  return true;
}

absl::Status RunningJob::AllServersThere() const {
  for (const auto& [id, server] : membership.servers()) {
    if (server.state != ServerState::kLive || servers.lost_since.contains(id)) {
      return absl::UnavailableError(absl::StrCat(Called("server", server.name), " is not there"));
    }
  }
  return absl::OkStatus();
}

std::vector<std::pair<WorkerId, Incarnation>> RunningJob::Holders() const {
  std::vector<std::pair<WorkerId, Incarnation>> holders;
  if (!tasks) return holders;
  for (const Holder& holder : tasks->Holders()) holders.emplace_back(holder.worker, holder.incarnation);
  return holders;
}

bool RunningJob::MayComeBack(ServerId server) const {
  return !config.snapshot_folder.empty() && phase.state == wire::JOB_TRAINING && servers.durable.contains(server);
}

bool RunningJob::StoppedUnsaved() const {
  const bool trained = phase.began != absl::InfiniteFuture() && progress.totals().samples() != checkpoints.samples();
  return phase.state == wire::JOB_STOPPED && config.keeps_state && !config.snapshot_folder.empty() &&
         config.job.checkpoint().at_end() && trained;
}

uint64_t RunningJob::SamplesDone() const {
  if (!tasks) return 0;
  const DataRanges& ranges = tasks->ranges();
  const uint64_t images = progress.totals().samples() / PassesOfPush(config.job);
  return std::clamp(images, ranges.samples_done(), ranges.samples_done() + ranges.samples_leased());
}

// Epochs count by the samples that are done, whichever worker still has which range.
uint32_t RunningJob::EpochsTrained() const {
  return tasks ? static_cast<uint32_t>(SamplesDone() / shards.layout().train_samples) : 0;
}

uint32_t RunningJob::EpochInProgress() const { return std::min(EpochsTrained() + 1, config.job.training().epochs()); }

std::optional<double> RunningJob::SecondsLeft(absl::Time now) const {
  const double rate = phase.Ended() || !tasks ? 0 : progress.SamplesPerSecondLately(now);
  if (rate <= 0) return std::nullopt;
  const uint64_t left = (tasks->ranges().samples_total() - SamplesDone()) * PassesOfPush(config.job);
  return static_cast<double>(left) / rate;
}

EvaluationSummary RunningJob::StandingAt(absl::Time now) const {
  const state::Totals& totals = progress.totals();
  return {
      .time_s = phase.ElapsedSeconds(now), .samples = totals.samples(), .samples_applied = totals.samples_applied()};
}

uint32_t RunningJob::BatchSizeFor(WorkerId worker) const {
  // Not to go over all workers for each range that is handed out.
  if (config.job.training().batch() != job::Training::BALANCE) {
    const auto origin = workers.origins.find(worker);
    return BatchSizeOf(config.job, origin != workers.origins.end() ? origin->second.group : 0);
  }
  std::vector<WorkerId> live;
  for (const auto& [id, member] : membership.workers()) {
    if (member.state == WorkerState::kLive) live.push_back(id);
  }
  return batch_sizes.For(worker, live);
}

uint32_t RunningJob::RangeUnit(uint32_t batch_size) const {
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  return static_cast<uint32_t>(std::min(ImagesOfPush(config.job, batch_size, shards.layout().train_samples), kMost));
}

bool RunningJob::Swift(WorkerId worker) const {
  const double own = batch_sizes.SamplesPerSecond(worker);
  if (own == 0) return true;
  double fastest = 0;
  for (const auto& [id, member] : membership.workers()) {
    const bool asks = member.state == WorkerState::kLive || member.state == WorkerState::kStandby;
    if (asks) fastest = std::max(fastest, batch_sizes.SamplesPerSecond(id));
  }
  return own * kMuchFaster >= fastest;
}

}  // namespace slackline::scheduler
