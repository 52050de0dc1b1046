#include "cli/run/status_view.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/base/byte_size.h"
#include "cli/run/progress.h"
#include "common/text/utf8.h"

namespace slackline::cli {
namespace {

constexpr int kLaneColumns = 24, kBarColumns = 30;
// Of more, only some are shown.
constexpr int kLanesMax = 32, kBucketsMax = 10, kNodesMax = 32;

std::string Repeated(char what, double share, int columns) {
  const double clamped = std::clamp(share, 0.0, 1.0);
  return std::string(static_cast<size_t>(std::lround(clamped * columns)), what);
}

std::string RenderAlerts(const wire::JobStatus& status) {
  std::string out;
  for (const wire::Alert& alert : status.alerts()) {
    absl::StrAppend(&out, "  ", alert.severity(), ": ", OneLine(alert.text()), "\n");
  }
  return out.empty() ? "alerts: none\n" : "alerts\n" + out;
}

// "  w-1   ====     |  +4", with the bound as a bar; one that waits is drawn with dots.
std::string RenderLane(const wire::WorkerView& worker, const wire::JobAsynchrony& asynchrony, uint64_t widest) {
  const auto scale = static_cast<double>(widest);
  std::string lane = Repeated(worker.waiting() ? '.' : '=', static_cast<double>(worker.slack()) / scale, kLaneColumns);
  lane.resize(kLaneColumns + 1, ' ');
  if (asynchrony.has_slack_bound()) {
    const double at = static_cast<double>(asynchrony.slack_bound()) / scale * kLaneColumns;
    lane[std::min<size_t>(kLaneColumns, static_cast<size_t>(std::lround(at)))] = '|';
  }
  const std::string devices = worker.devices().empty() ? "" : absl::StrCat(": ", absl::StrJoin(worker.devices(), ", "));
  return absl::StrFormat("  %-16s %s %8d  +%-4d waits %3.0f %%  staleness %.1f  %s\n", OneLine(worker.name()), lane,
                         worker.clock(), worker.slack(), 100 * worker.wait_fraction(), worker.staleness_mean(),
                         OneLine(absl::StrCat(worker.host(), devices)));
}

std::string RenderLanes(const wire::JobStatus& status) {
  const wire::JobAsynchrony& asynchrony = status.asynchrony();
  uint64_t widest = std::max<uint64_t>(1, asynchrony.slack_bound());
  std::vector<const wire::WorkerView*> live;
  for (const wire::WorkerView& worker : status.workers()) {
    if (worker.state() != "live") continue;
    live.push_back(&worker);
    widest = std::max(widest, worker.slack());
  }
  if (live.empty()) return "";
  // The slowest are those that others wait for.
  if (live.size() > kLanesMax) {
    std::stable_sort(live.begin(), live.end(),
                     [](const auto* one, const auto* other) { return one->slack() < other->slack(); });
  }
  std::string out = absl::StrCat("clocks, ahead of the slowest", asynchrony.has_slack_bound() ? "; | is the bound" : "",
                                 " (", asynchrony.mode(), ")\n");
  for (size_t i = 0; i < std::min<size_t>(live.size(), kLanesMax); ++i) {
    out += RenderLane(*live[i], asynchrony, widest);
  }
  if (live.size() > kLanesMax) absl::StrAppend(&out, "  and ", live.size() - kLanesMax, " more\n");
  return out;
}

std::string RenderStaleness(const wire::JobAsynchrony& asynchrony) {
  uint64_t most = 0, total = 0, others = 0;
  for (const wire::StalenessBucket& bucket : asynchrony.staleness()) {
    most = std::max(most, bucket.answers());
    total += bucket.answers();
  }
  if (total == 0) return "";
  std::string out = absl::StrFormat("staleness of pushes (mean %.2f, at most %d)\n", asynchrony.staleness_mean(),
                                    asynchrony.staleness_max());
  for (int i = 0; i < asynchrony.staleness_size(); ++i) {
    const wire::StalenessBucket& bucket = asynchrony.staleness(i);
    if (i >= kBucketsMax) {
      others += bucket.answers();
      continue;
    }
    absl::StrAppendFormat(&out, "  %5d  %-*s %s\n", bucket.from(), kBarColumns,
                          Repeated('#', static_cast<double>(bucket.answers()) / static_cast<double>(most), kBarColumns),
                          RenderCount(static_cast<double>(bucket.answers())));
  }
  if (others > 0) absl::StrAppend(&out, "   more  ", RenderCount(static_cast<double>(others)), "\n");
  return out;
}

std::string RenderServers(const wire::JobStatus& status) {
  std::string out;
  for (const wire::ServerView& server : status.servers()) {
    if (server.shards() == 0) continue;
    absl::StrAppendFormat(
        &out, "  %-16s %3d shards %10s  %8.1f steps/s  %s%s\n", OneLine(server.name()), server.shards(),
        RenderBytes(server.bytes()), server.steps_per_second(), server.durable() ? "on disk" : "not on disk",
        !server.has_backup()        ? ""
        : server.backup().in_step() ? absl::StrCat(", replica ", OneLine(server.backup().name()))
                                    : absl::StrCat(", replica ", OneLine(server.backup().name()), " is catching up"));
  }
  return out.empty() ? "" : "shards\n" + out;
}

std::string RenderNodes(const wire::JobStatus& status) {
  std::string out;
  for (int i = 0; i < std::min(status.nodes_size(), kNodesMax); ++i) {
    const wire::NodeView& node = status.nodes(i);
    std::vector<std::string> parts;
    const auto add = [&](const char* what, const auto& names) {
      if (!names.empty()) parts.push_back(OneLine(absl::StrCat(what, " ", absl::StrJoin(names, " "))));
    };
    add("servers", node.servers());
    add("backups", node.backups());
    add("workers", node.workers());
    absl::StrAppend(&out, "  ", node.switch_name().empty() ? "" : OneLine(node.switch_name()) + " / ",
                    node.host().empty() ? "unknown machine" : OneLine(node.host()), ": ", absl::StrJoin(parts, "; "),
                    "\n");
  }
  if (status.nodes_size() > kNodesMax) absl::StrAppend(&out, "  and ", status.nodes_size() - kNodesMax, " more\n");
  return out.empty() ? "" : "machines\n" + out;
}

std::string RenderStorage(const wire::JobStatus& status) {
  const wire::JobCheckpoints& checkpoints = status.checkpoints();
  std::vector<std::string> parts;
  if (checkpoints.whole() > 0) {
    parts.push_back(absl::StrCat("checkpoint ", checkpoints.whole(), " is ", RenderTime(checkpoints.age_s()), " old"));
  } else {
    parts.push_back("no checkpoint yet");
  }
  if (checkpoints.in_progress() > 0) parts.push_back(absl::StrCat(checkpoints.in_progress(), " is being made"));
  if (checkpoints.failed() > 0) {
    parts.push_back(absl::StrCat(checkpoints.failed(), " failed: ", OneLine(checkpoints.error())));
  }
  if (status.has_disk()) parts.push_back(absl::StrCat(RenderBytes(status.disk().free_bytes()), " free on the disk"));
  return absl::StrJoin(parts, "; ") + "\n";
}

}  // namespace

std::string PrintableLines(absl::string_view text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (std::string& line : lines) line = OneLine(line);
  return absl::StrJoin(lines, "\n");
}

std::string RenderDetails(const wire::JobStatus& status, absl::string_view page) {
  std::string out = "\n" + RenderAlerts(status);
  for (const std::string& part : {RenderLanes(status), RenderStaleness(status.asynchrony()), RenderServers(status),
                                  RenderNodes(status), RenderStorage(status)}) {
    out += part;
  }
  if (!page.empty()) absl::StrAppend(&out, "status page ", OneLine(page), "\n");
  return out;
}

}  // namespace slackline::cli
