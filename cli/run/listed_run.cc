#include "cli/run/listed_run.h"

#include <sys/stat.h>
#include <unistd.h>

#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/run/run_lock.h"
#include "common/metrics/test_metric.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

// Columns of the name of a job's metric; the rest is cut.
constexpr size_t kBestNameColumns = 10;
constexpr char kNotKnown[] = "-";

std::string RenderBest(const wire::ServiceJobFigures& figures) {
  if (!figures.has_best()) return kNotKnown;
  const bool map = figures.metric() == kMapMetric;
  if (map || figures.metric() == kAccuracyMetric) {
    return absl::StrFormat("%s%.2f %%", map ? absl::StrCat(NameOfMetric(kMapMetric), " ") : "", 100 * figures.best());
  }
  return absl::StrFormat("%s %.4g", figures.metric().substr(0, kBestNameColumns), figures.best());
}

std::string ListedState(const fs::path& run, const wire::JobStatus& end) {
  // A run without a lock was started by hand: only its scheduler knows whether it is there.
  return end.state() == kAway && !WhoRan(run).empty() ? kRunning : end.state();
}

// `slackline` writes job.yaml when it starts or resumes a run. Times in events.log may be virtual.
std::optional<absl::Time> BegunAt(const fs::path& run) {
  for (const char* const name : {"job.yaml", "submit/job.yaml", "events.log"}) {
    struct ::stat file {};
    if (::stat((run / name).c_str(), &file) == 0) return absl::TimeFromTimespec(file.st_mtim);
  }
  return std::nullopt;
}

// Counts what can be read: a live run removes files meanwhile.
std::optional<uint64_t> BytesIn(const fs::path& run) {
  std::error_code error;
  if (fs::directory_iterator(run, error); error) return std::nullopt;
  uint64_t bytes = 0;
  std::set<std::pair<dev_t, ino_t>> linked;
  std::vector<fs::path> folders = {run};
  while (!folders.empty()) {
    fs::directory_iterator entry(folders.back(), error);
    folders.pop_back();
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      struct ::stat file {};
      if (::lstat(entry->path().c_str(), &file) != 0) continue;
      if (S_ISDIR(file.st_mode)) folders.push_back(entry->path());
      if (!S_ISREG(file.st_mode)) continue;
      if (file.st_nlink > 1 && !linked.emplace(file.st_dev, file.st_ino).second) continue;
      bytes += static_cast<uint64_t>(file.st_size);
    }
  }
  return bytes;
}

}  // namespace

std::optional<ListedRun> LookAt(const fs::path& folder, bool ask_slurm) {
  ListedRun run;
  run.folder = folder;
  const absl::StatusOr<wire::JobStatus> end = ReadEnd(folder, ask_slurm);
  if (!end.ok() && ::access(folder.c_str(), X_OK) == 0) return std::nullopt;
  if (!end.ok()) return run;
  run.state = ListedState(folder, *end);
  run.figures = ReadFigures(folder, *end);
  run.test_metric = end->progress().test_metric();
  run.metric = end->progress().metric();
  run.begun = BegunAt(folder);
  run.bytes = BytesIn(folder);
  return run;
}

wire::ServiceJobFigures FiguresOf(const ListedRun& run) {
  wire::ServiceJobFigures figures;
  const RunFigures& own = run.figures;
  figures.set_mode(own.mode);
  if (own.workers) figures.set_workers(*own.workers);
  if (own.servers) figures.set_servers(*own.servers);
  if (own.epochs_done) figures.set_epochs_done(*own.epochs_done);
  if (own.epochs) figures.set_epochs(*own.epochs);
  if (run.bytes) figures.set_bytes(*run.bytes);
  if (run.metric.has_best() && run.metric.name() != kAccuracyMetric) {
    figures.set_metric(run.metric.name());
    figures.set_best(run.metric.best());
  } else if (own.best_test_accuracy) {
    figures.set_metric(std::string(run.test_metric == kMapMetric ? kMapMetric : kAccuracyMetric));
    figures.set_best(*own.best_test_accuracy);
  }
  return figures;
}

std::vector<std::string> FigureCells(const wire::ServiceJobFigures& figures) {
  const auto known = [](bool has, uint32_t count) { return has ? absl::StrCat(count) : std::string(kNotKnown); };
  const bool epochs = figures.has_epochs_done() || figures.has_epochs();
  return {figures.mode().empty() ? kNotKnown : figures.mode(), known(figures.has_workers(), figures.workers()),
          known(figures.has_servers(), figures.servers()),
          epochs ? absl::StrCat(known(figures.has_epochs_done(), figures.epochs_done()), "/",
                                known(figures.has_epochs(), figures.epochs()))
                 : kNotKnown,
          RenderBest(figures)};
}

std::string RenderAge(double seconds) {
  if (seconds < 60) return absl::StrFormat("%d s", static_cast<int64_t>(seconds));
  if (seconds < 3600) return absl::StrFormat("%d min", static_cast<int64_t>(seconds / 60));
  if (seconds < 48 * 3600) return absl::StrFormat("%d h", static_cast<int64_t>(seconds / 3600));
  return absl::StrFormat("%d d", static_cast<int64_t>(seconds / (24 * 3600)));
}

}  // namespace slackline::cli
