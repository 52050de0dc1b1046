#include "scheduler/control/job_view.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/metrics/test_accuracy.h"
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

}  // namespace

std::string JobView::Missing() const {
  std::vector<std::string> servers, uninstalled, workers, joining;
  for (const auto& [id, server] : job_.membership.servers()) {
    if (server.state != ServerState::kLive) continue;
    servers.push_back(server.name);
    if (!job_.shards.installed(id)) uninstalled.push_back(server.name);
  }
  for (const auto& [id, worker] : job_.membership.workers()) {
    if (worker.state == WorkerState::kLive) workers.push_back(worker.name);
    if (worker.state == WorkerState::kJoining) joining.push_back(worker.name);
  }
  const job::Cluster& cluster = job_.config.job.cluster();
  std::vector<std::string> missing;
  if (servers.size() < cluster.servers()) missing.push_back("has " + Count(servers, cluster.servers(), "servers"));
  if (job_.Replicated() && job_.backups.all().size() < cluster.servers()) {
    missing.push_back(absl::StrCat("has ", job_.backups.all().size(), " of ", cluster.servers(),
                                   " backups of servers (durability.mode replicated wants as many as servers)"));
  }
  if (workers.size() + joining.size() < cluster.workers()) {
    workers.insert(workers.end(), joining.begin(), joining.end());
    missing.push_back("has " + Count(workers, cluster.workers(), "workers"));
  } else if (workers.size() < cluster.workers() && missing.empty() && uninstalled.empty()) {
    missing.push_back("waits until all servers know workers " + absl::StrJoin(joining, ", "));
  }
  if (job_.first_worker && servers.size() == cluster.servers() && !uninstalled.empty()) {
    missing.push_back("waits for servers " + absl::StrJoin(uninstalled, ", ") + " to take their shards");
  }
  if (missing.empty()) return "";
  for (const auto& [name, reason] : job_.workers.early_exits)
    missing.push_back(absl::StrCat(name, " ended early (", reason, ")"));
  return absl::StrJoin(missing, "; ");
}

wire::GetStatusReply JobView::Status() const {
  const absl::Time now = job_.time.Now();
  wire::GetStatusReply reply;
  reply.set_job(job_.config.id.value());
  reply.set_name(job_.config.job.name());
  reply.set_state(job_.phase.state);
  reply.set_reason(job_.phase.state == wire::JOB_STARTING ? Missing() : job_.phase.reason);
  FillProgress(now, reply);
  FillMembers(now, reply);
  job_.checkpoints.Fill(now, reply);
  for (const std::string& event : job_.events.recent()) reply.add_events(event);
  reply.set_event_count(job_.events.count());
  if (job_.evaluations.last()) *reply.mutable_evaluation() = *job_.evaluations.last();
  reply.set_page(job_.config.page);
  if (job_.progress.energy().metered())
    *reply.mutable_energy() = job_.progress.energy().View(job_.phase.ElapsedSeconds(now));
  return reply;
}

void JobView::FillProgress(absl::Time now, wire::GetStatusReply& reply) const {
  const ProgressReport& latest = job_.progress.latest();
  const double samples_per_second = job_.phase.Ended() ? 0 : job_.progress.SamplesPerSecond(now);
  const uint64_t total = job_.tasks ? job_.tasks->ranges().samples_total() : 0;
  const uint64_t done = job_.SamplesDone();
  reply.set_epoch(job_.EpochInProgress());
  reply.set_epochs(job_.config.job.training().epochs());
  reply.set_samples_done(done);
  reply.set_samples_total(total);
  reply.set_step(job_.progress.totals().steps());
  reply.set_samples_per_second(samples_per_second);
  reply.set_seconds_left(job_.SecondsLeft(now).value_or(0));
  reply.set_elapsed_seconds(job_.phase.ElapsedSeconds(now));
  if (latest.loss) reply.set_loss(*latest.loss);
  if (latest.accuracy) reply.set_train_accuracy(*latest.accuracy);
  reply.set_staleness_mean(latest.staleness_mean);
  reply.set_staleness_max(latest.staleness_max);
  reply.set_slack(latest.slack);
  if (const auto& last = job_.evaluations.last()) {
    const std::optional<double> accuracy = TestAccuracyOf(*last);
    reply.set_has_test_accuracy(accuracy.has_value());
    reply.set_test_accuracy(accuracy.value_or(0));
    if (!last->has_map_50()) reply.set_test_loss(last->loss());
  }
  reply.set_test_metric(job_.evaluations.Metric());
}

void JobView::FillMembers(absl::Time now, wire::GetStatusReply& reply) const {
  for (const auto& [id, server] : job_.membership.servers()) {
    wire::MemberStatus& status = *reply.add_members();
    status = StatusOf(wire::MEMBER_ROLE_SERVER, id.value(), server, now);
    status.set_address(server.address);
    status.set_shards(static_cast<uint32_t>(job_.shards.CountOn(id)));
    if (job_.moves.Draining(id) && server.state == ServerState::kLive) status.set_state("draining");
  }
  job_.backups.Fill(now, reply);
  job_.moves.Fill(now, reply);
  std::vector<wire::MemberStatus> workers;
  for (const auto& [id, worker] : job_.membership.workers()) {
    wire::MemberStatus& status = workers.emplace_back(StatusOf(wire::MEMBER_ROLE_WORKER, id.value(), worker, now));
    const Holder holder = {id, worker.incarnation};
    const wire::WorkerProgress* progress = job_.progress.Of(holder);
    status.set_samples(job_.progress.TotalsOf(id).samples());
    if (progress == nullptr) continue;
    if (status.reason().empty() && !progress->waits_for().empty()) {
      status.set_reason(absl::StrCat("waits for ", progress->waits_for()));
    }
    status.set_clock(progress->clock());
    status.set_samples_per_second(job_.progress.SamplesPerSecond(holder, now));
  }
  const size_t listed = List(std::move(workers), reply);
  reply.set_workers_unlisted(job_.membership.last_worker().value() - static_cast<uint32_t>(listed));
}

std::string JobView::LastGoodState() const {
  const std::string kept = job_.checkpoints.whole() > 0
                               ? absl::StrCat("the last checkpoint is ", job_.checkpoints.folder())
                               : "no checkpoint was made";
  if (job_.evaluations.all().empty()) return absl::StrCat("nothing was evaluated yet, and ", kept);
  const EvaluationSummary& last = job_.evaluations.all().back();
  const std::string loss = last.map || !last.accuracy ? "" : absl::StrFormat(", loss %.4f", last.loss);
  return absl::StrCat("the last evaluation was after epoch ", last.epoch, " (",
                      Described(job::Metric::TEST_ACCURACY, last), loss, "), ", kept);
}

}  // namespace slackline::scheduler
