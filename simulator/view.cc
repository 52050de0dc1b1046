#include "simulator/view.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace slackline::simulator {
namespace {

constexpr double kMega = 1e6;

double Virtual(absl::Time now) { return absl::ToDoubleSeconds(now - absl::UnixEpoch()); }

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / kMega;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The share of its time that a worker waited for servers.
struct Waiting {
  std::string name;
  double share = 0;
};

// Those that worked, the one that waited least first.
std::vector<Waiting> WaitingOf(const scheduler::RunSummary& summary) {
  std::vector<Waiting> all;
  for (const scheduler::WorkerSummary& worker : summary.worker_list) {
    const double busy = worker.totals.compute_seconds() + worker.totals.wait_seconds();
    if (busy > 0) all.push_back({worker.name, worker.totals.wait_seconds() / busy});
  }
  std::stable_sort(all.begin(), all.end(), [](const Waiting& a, const Waiting& b) { return a.share < b.share; });
  return all;
}

double MeanOf(const std::vector<Waiting>& waiting) {
  double sum = 0;
  for (const Waiting& worker : waiting) sum += worker.share;
  return sum / static_cast<double>(waiting.size());
}

}  // namespace

View::View(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0), began_(absl::Now()), shown_(began_) {}

void View::Clear() {
  if (line_) std::fputs("\r\033[K", stderr);
  line_ = false;
}

void View::Event(const std::string& event, absl::Time now) {
  if (quiet_) return;
  Clear();
  absl::FPrintF(stderr, "%10.3f s  %s\n", Virtual(now), event);
}

void View::Progress(SimulatedCluster& cluster) {
  // Looking at the clock costs more than most events.
  constexpr uint64_t kEventsBetween = 256;
  if (quiet_ || !terminal_ || ++calls_ % kEventsBetween != 0) return;
  const absl::Time now = absl::Now();
  if (now - shown_ < absl::Milliseconds(500)) return;
  shown_ = now;
  const wire::GetStatusReply status = cluster.controller().GetStatus();
  const double done =
      static_cast<double>(status.samples_done()) / static_cast<double>(std::max<uint64_t>(1, status.samples_total()));
  const double spent = absl::ToDoubleSeconds(now - began_);
  Clear();
  absl::FPrintF(stderr, "epoch %d/%d  %3.0f %%  loss %.4f  virtual %.1f s  real %.1f s, about %.0f s left",
                status.epoch(), status.epochs(), 100 * done, status.loss(), cluster.queue().seconds(), spent,
                done > 0 ? spent / done - spent : 0.0);
  line_ = true;
}

void View::End(SimulatedCluster& cluster, const std::string& folder) {
  Clear();
  const wire::GetStatusReply status = cluster.controller().GetStatus();
  const Costs costs = cluster.costs();
  const scheduler::RunSummary summary = cluster.controller().Summary();
  const double seconds = summary.time_s, trained = summary.train_s;
  const double real = absl::ToDoubleSeconds(absl::Now() - began_);
  absl::PrintF("%s: %s\n", status.name(), status.reason());
  absl::PrintF("  virtual time    %.3f s, %.3f s of it training; played in %.2f s (%.2f s of CPU, %d events)\n",
               seconds, trained, real, CpuSeconds(), costs.events);
  if (trained > 0) {
    absl::PrintF("  throughput      %.1f samples/s, %.1f steps/s\n",
                 static_cast<double>(summary.totals.samples()) / trained,
                 static_cast<double>(summary.totals.steps()) / trained);
    absl::PrintF("  network         %.1f MB to servers, %.1f MB in all, %d messages; %.1f scheduler calls/s\n",
                 static_cast<double>(costs.bytes_to_servers) / kMega, static_cast<double>(costs.bytes) / kMega,
                 costs.messages, static_cast<double>(costs.scheduler_calls) / seconds);
  }
  const state::Totals& totals = summary.totals;
  const double answers = static_cast<double>(std::max<uint64_t>(1, totals.staleness_answers()));
  absl::PrintF("  staleness       mean %.3f, largest %d\n", static_cast<double>(totals.staleness_sum()) / answers,
               summary.staleness_max);
  const std::vector<Waiting> waiting = WaitingOf(summary);
  if (!waiting.empty()) {
    absl::PrintF("  waiting         mean %.1f %% of a worker's time; most: %s with %.1f %%, least: %s with %.1f %%\n",
                 100 * MeanOf(waiting), waiting.back().name, 100 * waiting.back().share, waiting.front().name,
                 100 * waiting.front().share);
  }
  if (status.has_test_accuracy() && status.evaluation().samples() > 0) {
    absl::PrintF("  test %s   %.2f %% on %d images\n", status.evaluation().has_map_50() ? "mAP     " : "accuracy",
                 100 * status.test_accuracy(), status.evaluation().samples());
  }
  absl::PrintF("  run folder      %s\n", folder);
}

}  // namespace slackline::simulator
