#include "cli/run/device_check.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/base/process.h"
#include "cli/base/sibling.h"
#include "common/device.h"
#include "common/job/job_file.h"
#include "common/job/job_kinds.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kLongest = absl::Seconds(60);

bool NamesGpu(const job::Job& job) {
  std::vector<std::string> names(job.worker().devices().begin(), job.worker().devices().end());
  for (const auto& group : job.worker().groups()) {
    names.insert(names.end(), group.devices().begin(), group.devices().end());
  }
  // auto is a cpu where there is no GPU.
  return absl::c_any_of(names, [](const std::string& name) {
    const auto device = ParseDevice(name);
    return device && device->kind == Device::Kind::kCuda;
  });
}

absl::Status AskWorker(const fs::path& worker, const job::Job& job, const fs::path& folder) {
  std::ofstream(folder / "job.yaml") << ToYaml(job);
  absl::StatusOr<Process> process = Process::Start(
      {.name = "slackline-worker", .command = {worker, folder / "job.yaml", "--check-devices"}, .log = folder / "log"});
  if (!process.ok()) return process.status();
  const std::optional<ProcessEnd> end = process->WaitFor(kLongest);
  if (!end) {
    return absl::DeadlineExceededError(absl::StrCat("slackline-worker did not answer within ",
                                                    absl::FormatDuration(kLongest), " which GPUs this machine has"));
  }
  if (end->ok()) return absl::OkStatus();
  const std::string said = process->LastWords();
  return absl::FailedPreconditionError(said.empty() ? absl::StrCat("slackline-worker: ", end->Describe()) : said);
}

}  // namespace

absl::Status CheckDevices(const job::Job& job) {
  if (RunsScripts(job) || !NamesGpu(job)) return absl::OkStatus();
  const absl::StatusOr<fs::path> worker = Sibling(kWorkerProgram);
  if (!worker.ok()) return worker.status();
  std::error_code error;
  std::string folder = fs::temp_directory_path(error) / "slackline-check-XXXXXX";
  if (error || ::mkdtemp(folder.data()) == nullptr) return absl::UnavailableError("cannot make a temporary folder");
  const absl::Status status = AskWorker(*worker, job, folder);
  fs::remove_all(folder, error);
  return status;
}

}  // namespace slackline::cli
