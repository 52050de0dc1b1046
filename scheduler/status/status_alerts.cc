#include "scheduler/status/status_alerts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "scheduler/base/event_log.h"
#include "scheduler/status/status_limits.h"

namespace slackline::scheduler {
namespace {

constexpr char kCritical[] = "critical", kWarning[] = "warning";
// Names that an alert says.
constexpr size_t kNamed = 5;
// Longer than any healthy step or gate.
constexpr double kNoProgressS = 30;
// Some worker meets the bound in every report of a healthy run, too; then nobody waits much.
constexpr double kAtBoundS = 600, kWaitsMuch = 0.25;
// Little room on the disk of the run folder; and so little that the next checkpoint may not fit.
constexpr double kDiskLow = 0.1, kDiskFull = 0.02;
constexpr uint64_t kDiskAmple = uint64_t{50} << 30;

void Add(wire::JobStatus& status, const char* severity, const char* kind, std::string text) {
  wire::Alert& alert = *status.add_alerts();
  alert.set_severity(severity);
  alert.set_kind(kind);
  alert.set_text(std::move(text));
}

// "w-1, w-2 and 7 more"
std::string Some(const std::vector<std::string>& names) {
  if (names.size() <= kNamed) return absl::StrJoin(names, ", ");
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + kNamed, ", "), " and ", names.size() - kNamed,
                      " more");
}

std::string For(double seconds) { return Readable(absl::Seconds(std::max(1LL, std::llround(seconds)))); }

void OfWorkers(wire::JobStatus& status) {
  std::vector<std::string> lost;
  std::string why;
  double idle_s = std::numeric_limits<double>::infinity();
  std::set<std::string> there;
  for (const wire::WorkerView& worker : status.workers()) {
    if (worker.state() == "live") there.insert(worker.name());
  }
  for (const wire::WorkerView& worker : status.workers()) {
    if (worker.state() == "live") idle_s = std::min(idle_s, worker.idle_s());
    // One that was started again is there.
    if (worker.state() != "dead" || worker.silent_s() >= kLostForS || there.contains(worker.name())) continue;
    lost.push_back(worker.name());
    why = absl::StrCat(worker.reason(), ", ", For(worker.silent_s()), " ago");
  }
  if (status.worker_counts().live() == 0) {
    Add(status, kCritical, "no_workers", "no worker is live: nothing is trained");
  } else if (idle_s > kNoProgressS && std::isfinite(idle_s)) {
    Add(status, kCritical, "no_progress", absl::StrCat("no worker has finished a step for ", For(idle_s)));
  }
  if (!lost.empty()) {
    Add(status, kWarning, "worker_lost",
        lost.size() == 1 ? absl::StrCat(Called("worker", lost.front()), " is lost: ", why)
                         : absl::StrCat(lost.size(), " workers are lost: ", Some(lost)));
  }
}

void OfServers(wire::JobStatus& status) {
  std::vector<std::string> lost, alone, behind, failing;
  for (const wire::ServerView& server : status.servers()) {
    if (server.state() == "dead" && server.shards() > 0) lost.push_back(server.name());
    if (server.state() != "live") continue;
    if (server.wants_backup() && !server.has_backup()) alone.push_back(server.name());
    if (server.wants_backup() && server.has_backup() && !server.backup().in_step()) behind.push_back(server.name());
    if (!server.snapshot_error().empty())
      failing.push_back(absl::StrCat(server.name(), " (", server.snapshot_error(), ")"));
  }
  if (!lost.empty()) {
    Add(status, kCritical, "server_lost", absl::StrCat("lost with their shards, training waits: ", Some(lost)));
  }
  if (!failing.empty()) {
    Add(status, kWarning, "snapshots_failing", absl::StrCat("no snapshots can be written by ", Some(failing)));
  }
  if (!alone.empty()) Add(status, kWarning, "no_backup", absl::StrCat("without a backup: ", Some(alone)));
  if (!behind.empty()) {
    Add(status, kWarning, "no_backup", absl::StrCat("with a backup that is still catching up: ", Some(behind)));
  }
}

void OfTraining(wire::JobStatus& status) {
  const wire::JobProgress& progress = status.progress();
  if (progress.has_diverged_ago_s() && progress.diverged_ago_s() < kLostForS) {
    Add(status, kCritical, "diverging", absl::StrCat("training diverged ", For(progress.diverged_ago_s()), " ago"));
  } else if (progress.has_loss() && !std::isfinite(progress.loss())) {
    Add(status, kCritical, "diverging", "the loss is not a finite number");
  }
  const wire::JobAsynchrony& asynchrony = status.asynchrony();
  double waits = 0;
  for (const wire::WorkerView& worker : status.workers()) {
    if (worker.state() == "live") waits = std::max(waits, worker.wait_fraction());
  }
  if (asynchrony.has_at_bound_s() && asynchrony.at_bound_s() >= kAtBoundS && waits >= kWaitsMuch) {
    Add(status, kWarning, "slack_at_bound",
        absl::StrCat("for ", For(asynchrony.at_bound_s()), " the slowest worker has held the others at the bound of ",
                     asynchrony.slack_bound(), " clocks; they wait up to ", std::llround(100 * waits),
                     " % of their time"));
  }
}

void OfStorage(wire::JobStatus& status) {
  const wire::JobCheckpoints& checkpoints = status.checkpoints();
  if (checkpoints.failed() > checkpoints.whole()) {
    Add(status, kWarning, "checkpoint_failed",
        absl::StrCat("checkpoint ", checkpoints.failed(), " failed: ", checkpoints.error()));
  }
  const wire::DiskView& disk = status.disk();
  if (!status.has_disk() || disk.total_bytes() == 0 || disk.free_bytes() > kDiskAmple) return;
  const double free = static_cast<double>(disk.free_bytes()) / static_cast<double>(disk.total_bytes());
  if (free >= kDiskLow) return;
  Add(status, free < kDiskFull ? kCritical : kWarning, "disk",
      absl::StrFormat("%.1f GiB are free on the disk of the run folder (%.0f %%)",
                      static_cast<double>(disk.free_bytes()) / (1 << 30), 100 * free));
}

// Switches from the top down, and the machine.
std::pair<std::string, std::string> PlaceOf(const std::string& topology, const std::string& host) {
  if (topology.empty()) return {"", host};
  const size_t dot = topology.rfind('.');
  if (dot == std::string::npos) return {"", topology};
  return {topology.substr(0, dot), topology.substr(dot + 1)};
}

template <typename Names>
void AddName(const std::string& name, Names& names) {
  if (names.size() < static_cast<int>(kMembersOfNodeShown)) *names.Add() = name;
}

}  // namespace

void AddAlerts(wire::JobStatus& status) {
  if (status.state() == "failed") Add(status, kCritical, "job_failed", status.reason());
  if (status.state() == "training") {
    OfServers(status);
    OfWorkers(status);
    OfTraining(status);
  }
  if (status.state() == "training" || status.state() == "starting") OfStorage(status);
  std::stable_sort(status.mutable_alerts()->begin(), status.mutable_alerts()->end(),
                   [](const wire::Alert& one, const wire::Alert& other) { return one.severity() < other.severity(); });
}

void AddNodes(wire::JobStatus& status) {
  std::map<std::pair<std::string, std::string>, wire::NodeView> nodes;
  for (const wire::WorkerView& worker : status.workers()) {
    if (worker.state() == "dead" || worker.state() == "left") continue;
    AddName(worker.name(), *nodes[PlaceOf(worker.topology(), worker.host())].mutable_workers());
  }
  for (const wire::ServerView& server : status.servers()) {
    if (server.state() == "dead" || server.state() == "left") continue;
    AddName(server.name(), *nodes[PlaceOf(server.topology(), server.host())].mutable_servers());
    if (!server.has_backup()) continue;
    const wire::BackupView& backup = server.backup();
    AddName(backup.name(), *nodes[PlaceOf(backup.topology(), backup.host())].mutable_backups());
  }
  for (auto& [place, node] : nodes) {
    node.set_switch_name(place.first);
    node.set_host(place.second);
    *status.add_nodes() = std::move(node);
  }
}

}  // namespace slackline::scheduler
