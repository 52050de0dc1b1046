#include "cli/commands/runs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "cli/base/complain.h"
#include "cli/commands/shared_options.h"
#include "cli/run/progress.h"
#include "cli/run/run_lock.h"
#include "common/metrics/test_metric.h"
#include "common/text/help.h"
#include "common/text/json_text.h"
#include "common/text/utf8.h"
#include "common/text/wrap_text.h"

namespace slackline::cli {
namespace {

const HelpText kRunsHelp = {
    .example = "slackline runs",
    .text =
        "Shows the newest run first. A run begins when it is started or resumed. `-` stands for a figure that no file "
        "tells. `slackline status` shows more of a run. States and columns: slackline help run-folder.",
    .examples =
        "slackline runs /scratch/runs\n"
        "slackline runs --json | jq '.[] | select(.state == \"failed\") | .folder'"};

namespace fs = std::filesystem;

constexpr size_t kTableColumns = 100, kRunColumnsMin = 12;
constexpr size_t kColumns = 9;
// Columns of the name of a job's metric; the rest is cut.
constexpr size_t kMetricColumns = 10;
constexpr char kUnknown[] = "-", kCut[] = "...";

using RowCells = std::array<std::string, kColumns>;
// The first columns are texts and begin at the left; the others are figures and end at the right.
constexpr size_t kTexts = 3;
const RowCells kTitles = {"run", "state", "mode", "workers", "servers", "epochs", "best test", "age", "size"};

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

// Returns the run in `folder`; nullopt if there is none. A folder that nobody may look into counts as a run.
std::optional<ListedRun> LookAt(const fs::path& folder) {
  ListedRun run;
  run.folder = folder;
  const absl::StatusOr<wire::JobStatus> end = ReadEnd(folder);
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

std::string RunName(const ListedRun& run) { return run.folder.filename(); }

double AgeSeconds(absl::Time begun, absl::Time now) { return std::max(0.0, absl::ToDoubleSeconds(now - begun)); }

// Examples: "12 s", "59 min", "47 h", "12 d".
std::string RenderAge(double seconds) {
  if (seconds < 60) return absl::StrFormat("%d s", static_cast<int64_t>(seconds));
  if (seconds < 3600) return absl::StrFormat("%d min", static_cast<int64_t>(seconds / 60));
  if (seconds < 48 * 3600) return absl::StrFormat("%d h", static_cast<int64_t>(seconds / 3600));
  return absl::StrFormat("%d d", static_cast<int64_t>(seconds / (24 * 3600)));
}

std::string RenderBest(const ListedRun& run) {
  if (run.metric.has_best() && run.metric.name() != kAccuracyMetric) {
    return absl::StrFormat("%s %.4g", run.metric.name().substr(0, kMetricColumns), run.metric.best());
  }
  if (!run.figures.best_test_accuracy) return kUnknown;
  const bool map = run.test_metric == kMapMetric;
  return absl::StrFormat("%s%.2f %%", map ? absl::StrCat(NameOfMetric(kMapMetric), " ") : "",
                         100 * *run.figures.best_test_accuracy);
}

std::string Known(const std::string& text) { return text.empty() ? kUnknown : text; }
std::string Known(const std::optional<uint32_t>& count) { return count ? absl::StrCat(*count) : kUnknown; }

RowCells RowOf(const ListedRun& run, absl::Time now) {
  const RunFigures& figures = run.figures;
  const bool epochs = figures.epochs_done || figures.epochs;
  return {OneLine(ValidText(RunName(run))),
          Known(run.state),
          Known(figures.mode),
          Known(figures.workers),
          Known(figures.servers),
          epochs ? absl::StrCat(Known(figures.epochs_done), "/", Known(figures.epochs)) : kUnknown,
          RenderBest(run),
          run.begun ? RenderAge(AgeSeconds(*run.begun, now)) : kUnknown,
          run.bytes ? RenderBytes(*run.bytes) : kUnknown};
}

// The beginning of `text` that takes so many columns.
absl::string_view First(absl::string_view text, size_t columns) {
  while (Columns(text) > columns) text.remove_suffix(1);
  return text;
}

// Names of one job differ at the end, where the date is.
std::string Shortened(const std::string& name, size_t columns) {
  const size_t all = Columns(name), kept = columns - Columns(kCut);
  if (all <= columns) return name;
  const size_t head = kept / 3;
  return absl::StrCat(First(name, head), kCut, name.substr(First(name, all - (kept - head)).size()));
}

std::string RowText(const RowCells& cells, const std::array<size_t, kColumns>& widths) {
  std::string line;
  for (size_t i = 0; i < kColumns; ++i) {
    const std::string space(widths[i] - Columns(cells[i]), ' ');
    absl::StrAppend(&line,
                    i == 0       ? ""
                    : i < kTexts ? "  "
                                 : " ",
                    i < kTexts ? cells[i] : space, i < kTexts ? space : cells[i]);
  }
  return line + "\n";
}

template <typename Value>
nlohmann::ordered_json OrNull(const std::optional<Value>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json OrNull(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
}

}  // namespace

absl::StatusOr<std::vector<ListedRun>> FindRuns(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return absl::NotFoundError(absl::StrCat("found no folder ", ValidText(folder.string()),
                                            "; allowed is a folder that holds run folders: name one, or run "
                                            "`slackline train JOB.yaml`, which makes runs/"));
  }
  std::vector<ListedRun> runs;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code unknown;
    if (!entry->is_directory(unknown)) continue;
    if (std::optional<ListedRun> run = LookAt(entry->path())) runs.push_back(*std::move(run));
  }
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot read the folder ", ValidText(folder.string()), ": ", error.message()));
  }
  std::sort(runs.begin(), runs.end(), [](const ListedRun& one, const ListedRun& other) {
    return std::tie(one.begun, one.folder) > std::tie(other.begun, other.folder);
  });
  return runs;
}

std::string RenderRuns(const std::vector<ListedRun>& runs, absl::Time now) {
  std::vector<RowCells> rows = {kTitles};
  for (const ListedRun& run : runs) rows.push_back(RowOf(run, now));
  std::array<size_t, kColumns> widths{};
  for (const RowCells& row : rows) {
    for (size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], Columns(row[i]));
  }
  const size_t others = Columns(RowText({}, widths)) - 1 - widths[0];
  const size_t room = kTableColumns - std::min(kTableColumns - kRunColumnsMin, others);
  widths[0] = std::min(widths[0], room);
  std::string table;
  for (RowCells& row : rows) {
    row[0] = Shortened(row[0], widths[0]);
    table += RowText(row, widths);
  }
  return table;
}

std::string RunsJson(const std::vector<ListedRun>& runs, absl::Time now) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ListedRun& run : runs) {
    const RunFigures& figures = run.figures;
    const std::optional<double> age_s = run.begun ? AgeSeconds(*run.begun, now) : std::optional<double>();
    list.push_back({{"name", RunName(run)},
                    {"folder", fs::absolute(run.folder).lexically_normal().string()},
                    {"state", OrNull(run.state)},
                    {"mode", OrNull(figures.mode)},
                    {"workers", OrNull(figures.workers)},
                    {"servers", OrNull(figures.servers)},
                    {"epochs_done", OrNull(figures.epochs_done)},
                    {"epochs", OrNull(figures.epochs)},
                    {"best_test_accuracy", OrNull(figures.best_test_accuracy)},
                    {"test_metric", OrNull(run.test_metric)},
                    {"metric", OrNull(run.metric.name())},
                    {"best_metric", run.metric.has_best() ? nlohmann::ordered_json(run.metric.best()) : nullptr},
                    {"age_s", OrNull(age_s)},
                    {"bytes", OrNull(run.bytes)}});
  }
  return DumpJson(list, 2) + "\n";
}

int ListRuns(const std::string& folder, bool json) {
  const absl::StatusOr<std::vector<ListedRun>> runs = FindRuns(folder);
  if (!runs.ok()) return Complain(runs.status());
  const absl::Time now = absl::Now();
  if (json) {
    std::printf("%s", RunsJson(*runs, now).c_str());
  } else if (runs->empty()) {
    std::printf("There are no runs in %s.\n", folder.c_str());
  } else {
    std::printf("%s", RenderRuns(*runs, now).c_str());
  }
  return kExitDone;
}

AddedCommand AddRuns(CLI::App& app, const char* /*program*/) {
  const auto folder = std::make_shared<std::string>("runs");
  const auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("runs", "List the runs of a folder: state, epochs, accuracy, age, size");
  command->add_option("FOLDER", *folder, "Folder that holds run folders. Default: runs");
  command->add_flag("--json", *json, "Print a JSON array, with bytes, seconds and shares");
  SetHelp(*command, kRunsHelp);
  return {command, [folder, json] { return ListRuns(*folder, *json); }};
}

}  // namespace slackline::cli
