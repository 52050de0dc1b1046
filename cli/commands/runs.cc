#include "cli/commands/runs.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <system_error>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/base/byte_size.h"
#include "cli/base/complain.h"
#include "cli/base/table.h"
#include "cli/commands/shared_options.h"
#include "cli/run/progress.h"
#include "common/text/help.h"
#include "common/text/json_text.h"
#include "common/text/utf8.h"

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

constexpr char kUnknown[] = "-";

// The first columns are texts and begin at the left; the others are figures and end at the right.
constexpr size_t kTexts = 3;
const std::vector<std::string> kTitles = {"run",    "state",     "mode", "workers", "servers",
                                          "epochs", "best test", "age",  "size"};

std::string RunName(const ListedRun& run) { return run.folder.filename(); }

double AgeSeconds(absl::Time begun, absl::Time now) { return std::max(0.0, absl::ToDoubleSeconds(now - begun)); }

std::vector<std::string> RowOf(const ListedRun& run, absl::Time now) {
  std::vector<std::string> row = {OneLine(ValidText(RunName(run))), run.state.empty() ? kUnknown : run.state};
  for (std::string& cell : FigureCells(FiguresOf(run))) row.push_back(std::move(cell));
  row.push_back(run.begun ? RenderAge(AgeSeconds(*run.begun, now)) : kUnknown);
  row.push_back(run.bytes ? RenderBytes(*run.bytes) : kUnknown);
  return row;
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
  Table table = {.rows = {kTitles}, .texts = kTexts};
  for (const ListedRun& run : runs) table.rows.push_back(RowOf(run, now));
  return RenderTable(std::move(table));
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
