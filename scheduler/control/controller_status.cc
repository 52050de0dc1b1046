// What people see of a job: status, reports, events.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/push_samples.h"
#include "common/metrics/test_metric.h"
#include "scheduler/control/controller.h"

namespace slackline::scheduler {
namespace {

// Of so many epochs each is worth a line; of more, one now and then.
constexpr uint32_t kEpochsToldMax = 50;
constexpr absl::Duration kEpochToldEvery = absl::Seconds(5);

// Clients take messages of 4 MiB; servers, the evaluation, events and the full status need most of that.
constexpr size_t kWorkerBytesMax = 1 << 20;
// Bytes that the list adds to each worker.
constexpr size_t kMemberHeaderBytes = 8;

// "1 of 2 servers (ps-1)"
std::string Count(const std::vector<std::string>& there, uint32_t wanted, const std::string& what) {
  return absl::StrCat(there.size(), " of ", wanted, " ", what,
                      there.empty() ? "" : absl::StrCat(" (", absl::StrJoin(there, ", "), ")"));
}

// A server or a worker; what both have.
template <typename Member>
wire::MemberStatus StatusOf(wire::MemberRole role, uint32_t id, const Member& member, absl::Time now) {
  wire::MemberStatus status;
  status.set_role(role);
  status.set_member(id);
  status.set_incarnation(member.incarnation.value());
  status.set_name(member.name);
  status.set_state(std::string(ToString(member.state)));
  status.set_reason(member.reason);
  status.set_silent_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(now - member.heard)));
  return status;
}

// Adds as many as there is room for, in their order. Live workers are left out first: those that need no attention.
// Returns how many were added.
size_t List(std::vector<wire::MemberStatus> workers, wire::GetStatusReply& reply) {
  size_t room = kWorkerBytesMax;
  std::vector<bool> listed(workers.size());
  for (const bool live : {false, true}) {
    for (size_t i = 0; i < workers.size(); ++i) {
      const size_t bytes = workers[i].ByteSizeLong() + kMemberHeaderBytes;
      if ((workers[i].state() == "live") != live || bytes > room) continue;
      listed[i] = true;
      room -= bytes;
    }
  }
  for (size_t i = 0; i < workers.size(); ++i) {
    if (listed[i]) *reply.add_members() = std::move(workers[i]);
  }
  return static_cast<size_t>(std::count(listed.begin(), listed.end(), true));
}

}  // namespace

std::string Controller::Missing() const {
  std::vector<std::string> servers, uninstalled, workers, joining;
  for (const auto& [id, server] : membership_.servers()) {
    if (server.state != ServerState::kLive) continue;
    servers.push_back(server.name);
    if (!shards_.installed(id)) uninstalled.push_back(server.name);
  }
  for (const auto& [id, worker] : membership_.workers()) {
    if (worker.state == WorkerState::kLive) workers.push_back(worker.name);
    if (worker.state == WorkerState::kJoining) joining.push_back(worker.name);
  }
  const job::Cluster& cluster = config_.job.cluster();
  std::vector<std::string> missing;
  if (servers.size() < cluster.servers()) missing.push_back("has " + Count(servers, cluster.servers(), "servers"));
  if (Replicated() && backups_.all().size() < cluster.servers()) {
    missing.push_back(absl::StrCat("has ", backups_.all().size(), " of ", cluster.servers(),
                                   " backups of servers (durability.mode replicated wants as many as servers)"));
  }
  if (workers.size() + joining.size() < cluster.workers()) {
    workers.insert(workers.end(), joining.begin(), joining.end());
    missing.push_back("has " + Count(workers, cluster.workers(), "workers"));
  } else if (workers.size() < cluster.workers() && missing.empty() && uninstalled.empty()) {
    missing.push_back("waits until all servers know workers " + absl::StrJoin(joining, ", "));
  }
  if (first_worker_ && servers.size() == cluster.servers() && !uninstalled.empty()) {
    missing.push_back("waits for servers " + absl::StrJoin(uninstalled, ", ") + " to take their shards");
  }
  if (missing.empty()) return "";
  for (const auto& [name, reason] : early_exits_) missing.push_back(absl::StrCat(name, " ended early (", reason, ")"));
  return absl::StrJoin(missing, "; ");
}

double Controller::ElapsedSeconds(absl::Time now) const {
  if (began_ == absl::InfiniteFuture()) return 0;
  return absl::ToDoubleSeconds(std::min(now, ended_) - began_);
}

uint64_t Controller::SamplesDone() const {
  if (!tasks_) return 0;
  const DataRanges& ranges = tasks_->ranges();
  const uint64_t images = progress_.totals().samples / PassesOfPush(config_.job);
  return std::clamp(images, ranges.samples_done(), ranges.samples_done() + ranges.samples_leased());
}

EvaluationSummary Controller::StandingAt(absl::Time now) const {
  const ProgressTotals& totals = progress_.totals();
  return {.time_s = ElapsedSeconds(now), .samples = totals.samples, .samples_applied = totals.samples_applied};
}

// As many as fit into the samples that are done, whoever has which range still.
uint32_t Controller::EpochsTrained() const {
  return tasks_ ? static_cast<uint32_t>(SamplesDone() / shards_.layout().train_samples) : 0;
}

uint32_t Controller::EpochInProgress() const { return std::min(EpochsTrained() + 1, config_.job.training().epochs()); }

// --- Reports ----------------------------------------------------------------------------------------------------

void Controller::FollowTraining(absl::Time now) {
  if (!tasks_) return;
  tasks_->Reached({.samples_trained = SamplesDone(),
                   .samples_applied = progress_.totals().samples_applied / PassesOfPush(config_.job)});
  const uint32_t before = epoch_book_.epochs();
  const uint32_t over = EpochsTrained();
  if (over <= before) return;
  const EnergyLedger& energy = progress_.energy();
  epoch_book_.Over(over, {.time_s = ElapsedSeconds(now),
                          .totals = progress_.totals(),
                          .joules = energy.metered() ? std::optional(energy.total_joules()) : std::nullopt});
  const uint32_t epochs = config_.job.training().epochs();
  for (uint32_t epoch = before + 1; epoch <= over; ++epoch) {
    if (epochs > kEpochsToldMax && epoch != epochs && now - epoch_told_ <= kEpochToldEvery) continue;
    events_.Add(absl::StrCat("epoch ", epoch, " of ", epochs, " is complete"));
    epoch_told_ = now;
  }
}

void Controller::AddReport(absl::Time now) {
  const ProgressReport& progress = progress_.Report();
  Report report;
  report.time_s = ElapsedSeconds(now);
  report.epoch = EpochInProgress();
  report.step = progress.totals.steps;
  report.samples = progress.totals.samples;
  report.loss = progress.loss;
  report.accuracy = progress.accuracy;
  evaluations_.Report(report);
  report.samples_per_second = progress_.SamplesPerSecond(now);
  report.staleness_mean = progress.staleness_mean;
  report.staleness = progress.staleness;
  report.staleness_max = progress.staleness_max;
  report.slack = progress.slack;
  report.staleness_bound = watch_.bound();
  report.staleness_bound_changes = watch_.bound_changes();
  report.gradient_norm_max = progress.gradient_norm_max;
  report.divergences = watch_.divergences();
  report.live_workers = membership_.CountLive();
  for (const auto& [id, server] : membership_.servers()) report.live_servers += server.state == ServerState::kLive;
  report.shard_moves = moves_.made();
  report.worker_deaths = worker_deaths_;
  report.checkpoints = checkpoints_.made();
  report.checkpoints_failed = checkpoints_.failures();
  if (checkpoints_.whole() > 0) report.checkpoint_age_s = absl::ToDoubleSeconds(checkpoints_.Age(now));
  report.samples_given_twice = tasks_->ranges().samples_given_twice();
  reports_.push_back(report);
  last_report_ = now;
}

std::vector<Report> Controller::TakeReports() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(reports_, {});
}

std::optional<std::vector<EpochFigures>> Controller::TakeEpochs() {
  absl::MutexLock lock(&mutex_);
  return epoch_book_.TakeNews();
}

std::deque<std::string> Controller::TakeEvents() {
  absl::MutexLock lock(&mutex_);
  return events_.Take();
}

void Controller::EventsRecorded() {
  absl::MutexLock lock(&mutex_);
  events_.Recorded();
}

void Controller::AddEvent(const std::string& event) {
  absl::MutexLock lock(&mutex_);
  events_.Add(event);
}

bool Controller::HasEvents() const {
  absl::MutexLock lock(&mutex_);
  return events_.waiting();
}

// --- Status -----------------------------------------------------------------------------------------------------

wire::GetStatusReply Controller::GetStatus() {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = time_.Now();
  // The last word: what became of the last checkpoint is in it.
  status_seen_ = status_seen_ || stopping_ != absl::InfiniteFuture();
  wire::GetStatusReply reply;
  reply.set_job(config_.id.value());
  reply.set_name(config_.job.name());
  reply.set_state(state_);
  reply.set_reason(state_ == wire::JOB_STARTING ? Missing() : reason_);
  FillProgress(now, reply);
  FillMembers(now, reply);
  checkpoints_.Fill(now, reply);
  for (const std::string& event : events_.recent()) reply.add_events(event);
  reply.set_event_count(events_.count());
  if (evaluations_.last()) *reply.mutable_evaluation() = *evaluations_.last();
  reply.set_page(config_.page);
  if (progress_.energy().metered()) *reply.mutable_energy() = progress_.energy().View(ElapsedSeconds(now));
  return reply;
}

std::optional<double> Controller::SecondsLeft(absl::Time now) const {
  const double rate = Ended() || !tasks_ ? 0 : progress_.SamplesPerSecondLately(now);
  if (rate <= 0) return std::nullopt;
  const uint64_t left = (tasks_->ranges().samples_total() - SamplesDone()) * PassesOfPush(config_.job);
  return static_cast<double>(left) / rate;
}

void Controller::FillProgress(absl::Time now, wire::GetStatusReply& reply) const {
  const ProgressReport& latest = progress_.latest();
  const double samples_per_second = Ended() ? 0 : progress_.SamplesPerSecond(now);
  const uint64_t total = tasks_ ? tasks_->ranges().samples_total() : 0;
  const uint64_t done = SamplesDone();
  reply.set_epoch(EpochInProgress());
  reply.set_epochs(config_.job.training().epochs());
  reply.set_samples_done(done);
  reply.set_samples_total(total);
  reply.set_step(progress_.totals().steps);
  reply.set_samples_per_second(samples_per_second);
  reply.set_seconds_left(SecondsLeft(now).value_or(0));
  reply.set_elapsed_seconds(ElapsedSeconds(now));
  if (latest.loss) reply.set_loss(*latest.loss);
  if (latest.accuracy) reply.set_train_accuracy(*latest.accuracy);
  reply.set_staleness_mean(latest.staleness_mean);
  reply.set_staleness_max(latest.staleness_max);
  reply.set_slack(latest.slack);
  reply.set_has_test_accuracy(evaluations_.last().has_value());
  if (evaluations_.last()) reply.set_test_accuracy(evaluations_.last()->accuracy());
  reply.set_test_metric(evaluations_.Metric());
}

void Controller::FillMembers(absl::Time now, wire::GetStatusReply& reply) const {
  for (const auto& [id, server] : membership_.servers()) {
    wire::MemberStatus& status = *reply.add_members();
    status = StatusOf(wire::MEMBER_ROLE_SERVER, id.value(), server, now);
    status.set_address(server.address);
    status.set_shards(static_cast<uint32_t>(shards_.CountOn(id)));
    if (moves_.Draining(id) && server.state == ServerState::kLive) status.set_state("draining");
  }
  backups_.Fill(now, reply);
  moves_.Fill(now, reply);
  std::vector<wire::MemberStatus> workers;
  for (const auto& [id, worker] : membership_.workers()) {
    wire::MemberStatus& status = workers.emplace_back(StatusOf(wire::MEMBER_ROLE_WORKER, id.value(), worker, now));
    const Holder holder = {id, worker.incarnation};
    const wire::WorkerProgress* progress = progress_.Of(holder);
    status.set_samples(progress_.TotalsOf(id).samples);
    if (progress == nullptr) continue;
    if (status.reason().empty() && !progress->waits_for().empty()) {
      status.set_reason(absl::StrCat("waits for ", progress->waits_for()));
    }
    status.set_clock(progress->clock());
    status.set_samples_per_second(progress_.SamplesPerSecond(holder, now));
  }
  const size_t listed = List(std::move(workers), reply);
  reply.set_workers_unlisted(membership_.last_worker().value() - static_cast<uint32_t>(listed));
}

}  // namespace slackline::scheduler
