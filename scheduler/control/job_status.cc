#include "scheduler/control/job_status.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/metrics/measured.h"
#include "common/metrics/test_metric.h"
#include "scheduler/watch/early_stopping.h"

namespace slackline::scheduler {
namespace {

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

void FillProgress(const RunningJob& job, absl::Time now, wire::GetStatusReply& reply) {
  const ProgressReport& latest = job.progress.latest();
  const double samples_per_second = job.phase.Ended() ? 0 : job.progress.SamplesPerSecond(now);
  const uint64_t total = job.tasks ? job.tasks->ranges().samples_total() : 0;
  const uint64_t done = job.SamplesDone();
  reply.set_epoch(job.EpochInProgress());
  reply.set_epochs(job.config.job.training().epochs());
  reply.set_samples_done(done);
  reply.set_samples_total(total);
  reply.set_step(job.progress.totals().steps());
  reply.set_samples_per_second(samples_per_second);
  reply.set_tokens_per_sample(job.config.job.training().tokens_per_sample());
  reply.set_seconds_left(job.SecondsLeft(now).value_or(0));
  reply.set_elapsed_seconds(job.phase.ElapsedSeconds(now));
  if (latest.loss) reply.set_loss(*latest.loss);
  if (latest.accuracy) reply.set_train_accuracy(*latest.accuracy);
  reply.set_staleness_mean(latest.staleness_mean);
  reply.set_staleness_max(latest.staleness_max);
  reply.set_slack(latest.slack);
  if (const auto& last = job.evaluations.last()) {
    const std::optional<double> accuracy = TestAccuracyOf(*last);
    reply.set_has_test_accuracy(accuracy.has_value());
    reply.set_test_accuracy(accuracy.value_or(0));
    if (const std::optional<double> loss = TestLossOf(*last)) reply.set_test_loss(*loss);
  }
  reply.set_test_metric(job.evaluations.Metric());
  *reply.mutable_metric() = job.evaluations.JobMetric();
  AddNamedValues(latest.values, reply.mutable_train_values());
}

void FillMembers(const RunningJob& job, absl::Time now, wire::GetStatusReply& reply) {
  for (const auto& [id, server] : job.membership.servers()) {
    wire::MemberStatus& status = *reply.add_members();
    status = StatusOf(wire::MEMBER_ROLE_SERVER, id.value(), server, now);
    status.set_address(server.address);
    status.set_shards(static_cast<uint32_t>(job.shards.CountOn(id)));
    if (job.moves.Draining(id) && server.state == ServerState::kLive) status.set_state("draining");
  }
  job.backups.Fill(now, reply);
  job.moves.Fill(now, reply);
  std::vector<wire::MemberStatus> workers;
  for (const auto& [id, worker] : job.membership.workers()) {
    wire::MemberStatus& status = workers.emplace_back(StatusOf(wire::MEMBER_ROLE_WORKER, id.value(), worker, now));
    const Holder holder = {id, worker.incarnation};
    const wire::WorkerProgress* progress = job.progress.Of(holder);
    status.set_samples(job.progress.TotalsOf(id).samples());
    if (progress == nullptr) continue;
    if (status.reason().empty() && !progress->waits_for().empty()) {
      status.set_reason(absl::StrCat("waits for ", progress->waits_for()));
    }
    status.set_clock(progress->clock());
    status.set_samples_per_second(job.progress.SamplesPerSecond(holder, now));
  }
  const size_t listed = List(std::move(workers), reply);
  reply.set_workers_unlisted(job.membership.last_worker().value() - static_cast<uint32_t>(listed));
}

}  // namespace

std::string Missing(const RunningJob& job) {
  std::vector<std::string> servers, uninstalled, workers, joining;
  for (const auto& [id, server] : job.membership.servers()) {
    if (server.state != ServerState::kLive) continue;
    servers.push_back(server.name);
    if (!job.shards.installed(id)) uninstalled.push_back(server.name);
  }
  for (const auto& [id, worker] : job.membership.workers()) {
    if (worker.state == WorkerState::kLive) workers.push_back(worker.name);
    if (worker.state == WorkerState::kJoining) joining.push_back(worker.name);
  }
  const job::Cluster& cluster = job.config.job.cluster();
  std::vector<std::string> missing;
  if (servers.size() < cluster.servers()) missing.push_back("has " + Count(servers, cluster.servers(), "servers"));
  if (job.Replicated() && job.backups.all().size() < cluster.servers()) {
    missing.push_back(absl::StrCat("has ", job.backups.all().size(), " of ", cluster.servers(),
                                   " backups of servers (durability.mode replicated wants as many as servers)"));
  }
  if (workers.size() + joining.size() < cluster.workers()) {
    workers.insert(workers.end(), joining.begin(), joining.end());
    missing.push_back("has " + Count(workers, cluster.workers(), "workers"));
  } else if (workers.size() < cluster.workers() && missing.empty() && uninstalled.empty()) {
    missing.push_back("waits until all servers know workers " + absl::StrJoin(joining, ", "));
  }
  if (job.ModelKnown() && servers.size() == cluster.servers() && !uninstalled.empty()) {
    missing.push_back("waits for servers " + absl::StrJoin(uninstalled, ", ") + " to take their shards");
  }
  if (missing.empty()) return "";
  for (const auto& [name, reason] : job.workers.early_exits)
    missing.push_back(absl::StrCat(name, " ended early (", reason, ")"));
  return absl::StrJoin(missing, "; ");
}

wire::GetStatusReply MakeStatus(const RunningJob& job) {
  const absl::Time now = job.time.Now();
  wire::GetStatusReply reply;
  reply.set_job(job.config.id.value());
  reply.set_name(job.config.job.name());
  reply.set_state(job.phase.state);
  reply.set_reason(job.phase.state == wire::JOB_STARTING ? Missing(job) : job.phase.reason);
  FillProgress(job, now, reply);
  FillMembers(job, now, reply);
  job.checkpoints.Fill(now, reply);
  for (const std::string& event : job.events.recent()) reply.add_events(event);
  reply.set_event_count(job.events.count());
  if (job.evaluations.last()) *reply.mutable_evaluation() = *job.evaluations.last();
  reply.set_page(job.config.page);
  if (job.progress.energy().metered())
    *reply.mutable_energy() = job.progress.energy().View(job.phase.ElapsedSeconds(now));
  return reply;
}

std::string LastGoodState(const RunningJob& job) {
  const std::string kept = job.checkpoints.whole() > 0
                               ? absl::StrCat("the last checkpoint is ", job.checkpoints.folder())
                               : "no checkpoint was made";
  if (job.evaluations.all().empty()) return absl::StrCat("nothing was evaluated yet, and ", kept);
  const EvaluationSummary& last = job.evaluations.all().back();
  const std::string metric = MetricOf(job.config.job).name;
  const bool more = last.loss && metric != kLossMetric && ValueOf(metric, last);
  return absl::StrCat("the last evaluation was after epoch ", last.epoch, " (", Described(metric, last),
                      more ? absl::StrCat(", ", FigureText(kLossMetric, *last.loss)) : "", "), ", kept);
}

}  // namespace slackline::scheduler
