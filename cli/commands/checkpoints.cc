#include "cli/commands/checkpoints.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "cli/base/complain.h"
#include "cli/commands/shared_options.h"
#include "cli/run/run_end.h"
#include "cli/run/scheduler_client.h"
#include "common/checkpoint/model_reader.h"
#include "common/job/job_file.h"
#include "common/metrics/measured.h"
#include "common/optimizer/averaged_weights.h"
#include "common/text/help.h"
#include "common/time/clock.h"
#include "worker/model/weights/safetensors.h"

namespace slackline::cli {
namespace {

const HelpText kCheckpointHelp = {
    .example = "slackline checkpoint runs/first",
    .text =
        "Training continues meanwhile. The command prints the folder of the checkpoint when it is complete. If no "
        "checkpoint can be made, the exit code is 1. SIGUSR1 to `slackline train` or to the scheduler has the same "
        "effect.",
    .examples = "slackline checkpoint 127.0.0.1:34567"};

const HelpText kCheckpointsHelp = {.example = "slackline checkpoints runs/first",
                                   .examples = "slackline checkpoints runs/first --verify"};

const HelpText kExportHelp = {
    .example = "slackline export runs/first model.safetensors",
    .text =
        "The file has the model's own parameter names. In PyTorch, load it with safetensors.torch.load_file() and "
        "load_state_dict().",
    .examples =
        "slackline export runs/first model.safetensors --checkpoint best\n"
        "slackline export runs/first/checkpoints/checkpoint-000003 model.safetensors"};

struct ExportOptions {
  std::string target;
  std::string checkpoint;
  std::string file;
  std::string which;
};

namespace fs = std::filesystem;

constexpr absl::Duration kCheckpointPoll = absl::Milliseconds(100);
constexpr absl::Duration kTooEarlyMax = absl::Seconds(5);
constexpr absl::Duration kCallTimeout = absl::Seconds(5);
// The scheduler gives a checkpoint up by itself; one that does not answer for so long is gone.
constexpr absl::Duration kNoAnswerMax = absl::Seconds(30);

// A run that has just begun, or waits for a server, is waited for a little.
absl::StatusOr<uint64_t> BeginCheckpoint(SchedulerClient& scheduler) {
  const absl::Time deadline = SteadyTime().Now() + kTooEarlyMax;
  while (true) {
    absl::StatusOr<uint64_t> number = scheduler.Checkpoint("on demand");
    if (number.ok() || !absl::IsUnavailable(number.status()) || SteadyTime().Now() > deadline) return number;
    absl::Notification().WaitForNotificationWithTimeout(kCheckpointPoll);
  }
}

// Until the checkpoint is whole or has failed.
absl::StatusOr<std::string> AwaitCheckpoint(SchedulerClient& scheduler, uint64_t number) {
  absl::Time heard = SteadyTime().Now();
  while (true) {
    const absl::StatusOr<wire::GetStatusReply> status = scheduler.GetStatus(kCallTimeout);
    if (status.ok()) {
      heard = SteadyTime().Now();
      if (status->checkpoint() >= number) return status->checkpoint_folder();
      if (status->checkpoint_failed() >= number) return absl::UnavailableError(status->checkpoint_error());
      if (status->checkpoint_in_progress() < number) return absl::UnavailableError("the scheduler knows of it no more");
    } else if (SteadyTime().Now() - heard > kNoAnswerMax) {
      return absl::UnavailableError(absl::StrCat("the scheduler has not answered for ",
                                                 absl::FormatDuration(kNoAnswerMax), ": ", status.status().message()));
    }
    absl::Notification().WaitForNotificationWithTimeout(kCheckpointPoll);
  }
}

bool IsCheckpoint(const fs::path& path) {
  std::error_code error;
  return fs::exists(path / "manifest.json", error);
}

uint64_t BytesOf(const checkpoint::Manifest& manifest) {
  uint64_t bytes = 0;
  for (const wire::CheckpointFile& file : manifest.files()) bytes += file.bytes();
  return bytes;
}

// Of one that was made for an evaluation.
std::string BestNote(const checkpoint::Manifest& manifest) {
  if (!manifest.has_best() || absl::StartsWith(manifest.reason(), "best ")) return "";
  const state::MeasuredAccuracy& evaluation = manifest.best().evaluation();
  const std::vector<std::string> texts = FigureTexts(checkpoint::MetricOf(manifest.best()).name, evaluation);
  return absl::StrCat("; best: test ", texts.empty() ? "nothing" : texts.front(), " after epoch ", evaluation.epoch());
}

std::string Row(const checkpoint::Found& found, const absl::StatusOr<checkpoint::Manifest>& manifest,
                const absl::Status& state) {
  const std::string name = found.path.filename();
  if (!manifest.ok()) return absl::StrCat(name, "  broken: ", manifest.status().message(), "\n");
  const state::Scheduler& scheduler = manifest->scheduler();
  return absl::StrFormat(
      "%-18s %s  %6d %12d %10.1f %7d  %s  (%s)\n", name,
      absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMicros(manifest->created_unix_us()), absl::LocalTimeZone()),
      scheduler.tasks().ranges().epochs_done(), scheduler.progress().totals().samples(),
      static_cast<double>(BytesOf(*manifest)) / 1e6, manifest->files_size(),
      state.ok() ? "whole" : absl::StrCat("broken: ", state.message()), manifest->reason() + BestNote(*manifest));
}

absl::StatusOr<checkpoint::Choice> ChooseNamed(const fs::path& path) {
  absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::ReadManifest(path);
  if (!manifest.ok()) return manifest.status();
  const absl::Status whole = checkpoint::Verify(path, *manifest, /*thorough=*/true);
  if (!whole.ok()) return whole;
  return checkpoint::Choice{fs::absolute(path).lexically_normal(), *std::move(manifest), {}};
}

absl::StatusOr<checkpoint::Choice> ChooseFor(const std::string& target, const std::string& name) {
  if (IsCheckpoint(target) && name.empty()) return ChooseNamed(target);
  const absl::StatusOr<fs::path> folder = CheckpointsOfRun(target);
  if (!folder.ok()) return folder.status();
  return ChooseCheckpoint(*folder, name);
}

// As the first worker said it.
std::vector<worker::TensorInfo> TensorsOf(const checkpoint::Manifest& manifest) {
  std::vector<worker::TensorInfo> tensors;
  uint64_t offset = 0;
  for (const wire::TensorSpec& spec : manifest.scheduler().first_worker().tensors()) {
    worker::TensorInfo& tensor = tensors.emplace_back();
    tensor.name = spec.name();
    tensor.shape.assign(spec.shape().begin(), spec.shape().end());
    tensor.offset = offset;
    tensor.trained = spec.trained();
    offset += tensor.elements();
  }
  return tensors;
}

// Checks that weights may take the place of `file`: it does not exist, is empty, or begins like safetensors.
absl::Status CheckReplaceable(const std::string& file) {
  const auto refuse = [&](const char* what) {
    return absl::InvalidArgumentError(
        absl::StrCat("found ", file, ", which is ", what, "; allowed is a new file, or weights to replace"));
  };
  std::error_code error;
  // A new file would take the place of devices and links, too.
  const fs::file_status there = fs::symlink_status(file, error);
  if (!fs::exists(there)) return absl::OkStatus();
  if (!fs::is_regular_file(there)) return refuse("no regular file");
  // A header begins with 8 bytes that give its length.
  char begin[9] = {};
  std::ifstream in(file, std::ios::binary);
  in.read(begin, sizeof(begin));
  if (in.gcount() == 0 || begin[8] == '{') return absl::OkStatus();
  return refuse("no safetensors file");
}

}  // namespace

absl::StatusOr<fs::path> CheckpointsOfRun(const fs::path& run) {
  std::error_code error;
  if (!fs::exists(run / "job.yaml", error)) {
    return absl::NotFoundError(absl::StrCat("found no run in ", run.string(), " (job.yaml)"));
  }
  const absl::StatusOr<job::Job> job = ReadJobFile(run / "job.yaml", {});
  if (!job.ok()) return job.status();
  return checkpoint::FolderOfRun(job->checkpoint().folder(), run);
}

absl::StatusOr<checkpoint::Choice> ChooseCheckpoint(const fs::path& folder, const std::string& name) {
  if (name.empty()) return checkpoint::ChooseNewest(folder);
  if (absl::StrContains(name, '/')) return ChooseNamed(name);
  uint64_t number = 0;
  const bool numbered = name.find_first_not_of("0123456789") == std::string::npos && absl::SimpleAtoi(name, &number);
  absl::StatusOr<checkpoint::Choice> choice =
      name == "best" ? checkpoint::ChooseBest(folder)
                     : ChooseNamed(folder / (numbered ? checkpoint::NameOf(number) : name));
  if (!absl::IsNotFound(choice.status())) return choice;
  std::vector<std::string> names;
  for (const checkpoint::Found& found : checkpoint::List(folder)) names.push_back(found.path.filename());
  return absl::NotFoundError(absl::StrCat(
      choice.status().message(), "; allowed is ",
      names.empty() ? "none: there are no checkpoints" : absl::StrCat(absl::StrJoin(names, ", "), ", or its number")));
}

int ExportCheckpoint(const std::string& target, const std::string& name, const std::string& file,
                     const std::string& which, bool quiet) {
  if (absl::Status replaceable = CheckReplaceable(file); !replaceable.ok()) return Complain(replaceable);
  const absl::StatusOr<checkpoint::Choice> choice = ChooseFor(target, name);
  if (!choice.ok()) return Complain(choice.status());
  for (const std::string& broken : choice->passed_over)
    std::fprintf(stderr, "slackline: skipped a damaged checkpoint: %s\n", broken.c_str());
  const absl::StatusOr<std::unique_ptr<checkpoint::ModelReader>> reader = checkpoint::ModelReader::Open(choice->path);
  if (!reader.ok()) return Complain(reader.status());
  const std::vector<std::string>& arrays = (*reader)->arrays();
  const auto average = std::find(arrays.begin(), arrays.end(), kAveragedWeights);
  if (which == kExportAveraged && average == arrays.end()) {
    return Complain(
        absl::NotFoundError(absl::StrCat(choice->path.string(), " has no average of the weights; it has ",
                                         absl::StrJoin(arrays, ", "), ". A job keeps one with optimizer.ema above 0")));
  }
  const bool averaged = average != arrays.end() && which != kExportLast;
  std::vector<float> weights(choice->manifest.elements());
  const size_t array = averaged ? static_cast<size_t>(average - arrays.begin()) : 0;
  if (absl::Status read = (*reader)->Read(array, 0, absl::MakeSpan(weights)); !read.ok()) return Complain(read);
  const absl::Status written =
      worker::WriteSafetensors(file, TensorsOf(choice->manifest), weights,
                               {{"checkpoint", choice->path.filename()}, {"job", choice->manifest.job_name()}});
  if (!written.ok()) return Complain(written);
  if (!quiet) std::printf("%s: the %sweights of %s\n", file.c_str(), averaged ? "averaged " : "", choice->path.c_str());
  return kExitDone;
}

namespace {

// Makes a checkpoint of a live run, and waits until the checkpoint is whole.
int MakeCheckpoint(const StatusOptions& run) {
  const absl::StatusOr<std::string> address = FindAddress(run.target);
  if (!address.ok()) return Complain(OrTheEnd(run.target, address.status()));
  const auto protection = FindProtection(run);
  if (!protection.ok()) return ComplainOfWrongUse(protection.status());
  SchedulerClient scheduler(*address, *protection);
  const absl::StatusOr<uint64_t> number = BeginCheckpoint(scheduler);
  if (!number.ok()) {
    const absl::Status failed =
        absl::UnavailableError(absl::StrCat("no checkpoint: ", WhoSays(*address, number.status())));
    return Complain(OrTheEnd(run.target, failed));
  }
  const absl::StatusOr<std::string> folder = AwaitCheckpoint(scheduler, *number);
  if (!folder.ok()) {
    return Complain(absl::UnavailableError(absl::StrCat("checkpoint ", *number, ": ", folder.status().message())));
  }
  std::printf("%s\n", folder->c_str());
  return kExitDone;
}

// Lists the checkpoints of a run folder, or of a folder of checkpoints. `verify`: reads all bytes of each.
int ListCheckpoints(const std::string& target, bool verify) {
  std::error_code error;
  fs::path folder = target;
  const bool is_run = fs::exists(folder / "job.yaml", error);
  if (is_run) {
    const absl::StatusOr<fs::path> of_run = CheckpointsOfRun(folder);
    if (!of_run.ok()) return Complain(of_run.status());
    folder = *of_run;
  } else if (!fs::is_directory(folder, error)) {
    return Complain(absl::NotFoundError(
        absl::StrCat("found no folder ", target, "; allowed is a run folder, or a folder of checkpoints")));
  }
  const std::vector<checkpoint::Found> list = checkpoint::List(folder);
  if (list.empty() && !is_run) {
    return Complain(
        absl::NotFoundError(absl::StrCat("found no run in ", target, " (job.yaml), and no checkpoints; allowed is a ",
                                         "run folder, or a folder of checkpoints")));
  }
  if (list.empty()) {
    std::printf("There are no checkpoints in %s.\n", folder.c_str());
    return kExitDone;
  }
  std::printf("%-18s %-19s  %6s %12s %10s %7s\n", "checkpoint", "made", "epochs", "samples", "MB", "shards");
  bool all_whole = true;
  for (const checkpoint::Found& found : list) {
    const absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::ReadManifest(found.path);
    const absl::Status state = manifest.ok() ? checkpoint::Verify(found.path, *manifest, verify) : manifest.status();
    all_whole = all_whole && state.ok();
    std::printf("%s", Row(found, manifest, state).c_str());
  }
  return all_whole ? kExitDone : kExitFailed;
}

}  // namespace

AddedCommand AddCheckpoint(CLI::App& app, const char* /*program*/) {
  const auto run = std::make_shared<StatusOptions>();
  CLI::App* command = app.add_subcommand("checkpoint", "Make a checkpoint of a run now, and wait for it");
  TakeJobNumbers(*AddRun(*command, *run));
  SetHelp(*command, kCheckpointHelp);
  return {command, [run] { return MakeCheckpoint(*run); }};
}

AddedCommand AddCheckpoints(CLI::App& app, const char* /*program*/) {
  const auto target = std::make_shared<std::string>();
  const auto verify = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("checkpoints", "List the checkpoints of a run");
  TakeJobNumbers(
      *command->add_option("RUN", *target, "Run folder, number of a job, or folder of checkpoints")->required());
  command->add_flag("--verify", *verify, "Read every byte and compare the checksums");
  SetHelp(*command, kCheckpointsHelp);
  return {command, [target, verify] { return ListCheckpoints(*target, *verify); }};
}

AddedCommand AddExport(CLI::App& app, const char* /*program*/) {
  const auto options = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand("export", "Write the weights of a checkpoint as safetensors");
  command
      ->add_option("CHECKPOINT", options->target, "Folder of a checkpoint, or a run folder for its newest checkpoint")
      ->required();
  command->add_option("FILE", options->file, "File to write")->required();
  command
      ->add_option("--checkpoint", options->checkpoint,
                   "Name or number of a checkpoint of the run folder, or `best` (needs checkpoint.keep_best)")
      ->type_name("CHECKPOINT");
  command
      ->add_option("--weights", options->which,
                   "With optimizer.ema: the averaged weights or the last ones. Default: averaged")
      ->check(CLI::IsMember(std::vector<std::string>{kExportAveraged, kExportLast}));
  SetHelp(*command, kExportHelp);
  return {command,
          [options] { return ExportCheckpoint(options->target, options->checkpoint, options->file, options->which); }};
}

}  // namespace slackline::cli
