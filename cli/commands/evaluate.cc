#include "cli/commands/evaluate.h"

#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include <google/protobuf/util/json_util.h>
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/base/complain.h"
#include "cli/base/process.h"
#include "cli/base/scratch_folder.h"
#include "cli/base/sibling.h"
#include "cli/base/signals.h"
#include "cli/commands/checkpoints.h"
#include "cli/commands/shared_options.h"
#include "cli/run/report.h"
#include "common/job/command_options.h"
#include "common/text/help.h"
#include "scheduler.pb.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

const HelpText kEvaluateHelp = {
    .example = "slackline evaluate runs/first",
    .most_used = "--split --checkpoint --out",
    .groups = {{"Other weights and settings", "--weights --set"}},
    .text =
        "Measures loss, accuracy, and precision, recall and F1 of each class. The weights are those of a run, of a "
        "checkpoint, or of a safetensors file with the parameter names of the job's model. The command runs in one "
        "process on one device, without servers.\n\n"
        "Exit codes: 0 done; 1 failed; 2 wrong use: options, job file, or weights that do not fit.",
    .examples =
        "slackline evaluate runs/first --split validation --out report\n"
        "slackline evaluate runs/first --checkpoint best\n"
        "slackline evaluate job.yaml --weights resnet18.safetensors"};

constexpr absl::Duration kLookAgain = absl::Seconds(1);

std::string ReadWhole(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

absl::StatusOr<wire::EvaluationReport> ReadReport(const fs::path& path) {
  wire::EvaluationReport report;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto parsed = google::protobuf::util::JsonStringToMessage(ReadWhole(path), &report, options);
  if (parsed.ok()) return report;
  return absl::InternalError(absl::StrCat(path.string(), ": ", std::string(parsed.message())));
}

// The worker says what is wrong in its log, which is shown. It ends with this call, however that ends.
absl::Status MeasureIn(const fs::path& scratch, const std::vector<std::string>& command, SignalQueue& signals,
                       int* code) {
  absl::StatusOr<Process> worker = Process::Start({.name = "evaluation", .command = command, .log = scratch / "log"});
  if (!worker.ok()) return worker.status();
  std::optional<ProcessEnd> end;
  while (!(end = worker->Poll())) {
    const std::optional<int> signal = signals.Wait(kLookAgain);
    if (signal && IsStop(*signal)) return absl::CancelledError(absl::StrCat("stopped by signal ", *signal));
  }
  std::fputs(ReadWhole(scratch / "log").c_str(), stderr);
  *code = end->by_signal ? kExitFailed : end->code;
  if (!end->by_signal) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("the process that evaluates was ended: ", end->Describe()));
}

struct EvaluateOptions {
  std::string target;
  std::string weights;
  std::string checkpoint;
  std::string split;
  std::string out;
  std::vector<std::string> overrides;
};

// Evaluates the weights. Returns the exit code.
int Evaluate(const EvaluateOptions& options) {
  std::error_code error;
  const fs::path target = options.target;
  const bool run = fs::is_directory(target, error);
  if (!run && options.weights.empty()) {
    return ComplainOfWrongUse(absl::InvalidArgumentError(
        absl::StrCat("found ", options.target,
                     " and no weights; allowed is the folder of a run, or a job file with --weights FILE")));
  }
  // Held back from here on, so that what is in the folder goes with it.
  SignalQueue signals;
  const ScratchFolder scratch("evaluate");
  if (scratch.path().empty()) return Complain(absl::UnavailableError("cannot make a temporary folder"));
  std::string weights = options.weights.empty() ? (target / "model.safetensors").string() : options.weights;
  std::string shown = weights;
  if (!options.checkpoint.empty()) {
    weights = scratch.path() / "checkpoint.safetensors";
    shown = absl::StrCat("checkpoint ", options.checkpoint);
    const int exported = ExportCheckpoint(options.target, options.checkpoint == "newest" ? "" : options.checkpoint,
                                          weights, /*which=*/"", /*quiet=*/true);
    if (exported != kExitDone) return exported;
  } else if (!fs::is_regular_file(weights, error)) {
    return ComplainOfWrongUse(absl::NotFoundError(
        absl::StrCat("found no file ", weights,
                     options.weights.empty() ? "; allowed is a run that is done, or --checkpoint newest"
                                             : "; allowed is a safetensors file")));
  }
  const absl::StatusOr<fs::path> worker = Sibling(kWorkerProgram);
  if (!worker.ok()) return Complain(worker.status());
  const std::string out = options.out.empty() ? (scratch.path() / "report").string() : options.out;
  std::vector<std::string> command = {
      *worker,     run ? (target / "job.yaml").string() : options.target, "--evaluate", weights, "--out", out, "--name",
      "evaluation"};
  if (!options.split.empty()) command.insert(command.end(), {"--split", options.split});
  for (const std::string& one : options.overrides) command.insert(command.end(), {"--set", one});
  int code = kExitFailed;
  if (absl::Status measured = MeasureIn(scratch.path(), command, signals, &code); !measured.ok())
    return Complain(measured);
  if (code != kExitDone) return code;
  const absl::StatusOr<wire::EvaluationReport> report = ReadReport(fs::path(out) / "report.json");
  if (!report.ok()) return Complain(report.status());
  const std::string of = options.split.empty() ? "" : absl::StrCat(" of ", options.split);
  const std::string first =
      report->has_map_50()
          ? absl::StrFormat("%s  (%d images%s; %s)", RenderPrecision(*report), report->samples(), of, shown)
          : absl::StrFormat("Accuracy %.2f %%  (loss %.4f, %d images%s; %s)", 100 * report->accuracy(), report->loss(),
                            report->samples(), of, shown);
  std::fputs(RenderEvaluation(*report, first).c_str(), stdout);
  std::error_code ignored;
  const bool matrix = fs::exists(fs::path(out) / "confusion.csv", ignored);
  const char* const written = matrix ? "report.json and confusion.csv" : "report.json";
  if (!options.out.empty()) std::printf("\n%s has %s\n", options.out.c_str(), written);
  return kExitDone;
}

}  // namespace

AddedCommand AddEvaluate(CLI::App& app, const char* /*program*/) {
  const auto options = std::make_shared<EvaluateOptions>();
  CLI::App* command = app.add_subcommand("evaluate", "Measure the accuracy of weights");
  TakeJobNumbers(
      *command->add_option("RUN|JOB.yaml", options->target, "Run folder, number of a job, or job file with --weights")
           ->required());
  CLI::Option* const weights =
      command->add_option("--weights", options->weights, "Safetensors file. Default: model.safetensors of the run")
          ->type_name("FILE");
  command->add_option("--checkpoint", options->checkpoint, "Checkpoint of the run: name, number, `best` or `newest`")
      ->type_name("CHECKPOINT")
      ->excludes(weights);
  command->add_option("--split", options->split, "Images to use. Default: those of the last evaluation")
      ->check(CLI::IsMember({"train", "validation", "test"}));
  command->add_option("--out", options->out, "Also write report.json and confusion.csv into this folder")
      ->type_name("FOLDER");
  AddOverrides(*command, options->overrides, "data.path=other");
  SetHelp(*command, kEvaluateHelp);
  return {command, [options] { return Evaluate(*options); }};
}

}  // namespace slackline::cli
