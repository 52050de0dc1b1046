#include "cli/commands/check.h"

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "cli/base/complain.h"
#include "cli/commands/shared_options.h"
#include "cli/run/cluster.h"
#include "cli/run/run_checks.h"
#include "cli/run/tracking.h"
#include "common/base/slowdown.h"
#include "common/http/http_address.h"
#include "common/job/job_file.h"
#include "common/job/script_optimizer.h"
#include "common/security/check_credentials.h"
#include "common/text/help.h"
#include "worker/settings/job_checks.h"

namespace slackline::cli {
namespace {

const HelpText kCheckHelp = {
    .example = "slackline check job.yaml",
    .most_used = "--set --for --fingerprint",
    .text =
        "Prints the job with every default written out. For each mistake it names the line, the value, and the "
        "allowed values.",
    .examples =
        "slackline check job.yaml --set consistency.mode=bsp\n"
        "slackline check job.yaml --for train"};

// Returns a YAML comment that says how much memory delay compensation takes; empty without it.
std::string PriceOf(const job::Consistency& consistency) {
  if (consistency.delay_compensation() == job::DelayCompensation::NONE) return "";
  const bool adaptive = consistency.delay_compensation() == job::DelayCompensation::ADAPTIVE;
  const uint64_t bytes = sizeof(float) * (uint64_t{consistency.dc_references_max()} + (adaptive ? 1 : 0));
  return absl::StrCat("# Delay compensation takes at most ", bytes, " bytes for each parameter of the model, over all ",
                      "servers: ", consistency.dc_references_max(), " versions", adaptive ? " and a mean square" : "",
                      ".\n");
}

struct CheckOptions {
  std::string job_file;
  std::vector<std::string> overrides;
  bool only_fingerprint = false;
  // "train" or "simulate": what this machine must be able to do with the job. Empty: nothing, it is told what it
  // cannot.
  std::string purpose;
};

// Why this machine cannot do with the job what it must, one reason a line; empty where it can.
std::string WhyNotHere(const job::Job& job, const std::string& purpose) {
  std::vector<absl::Status> found = CheckHere(job, purpose == "simulate" ? Purpose::kSimulate : Purpose::kTrain);
  if (purpose == "train") {
    found.push_back(CheckWorkers({}, job));
    found.push_back(CheckTrackers(job, {}));
    found.push_back(Programs::BesideThisProgram(job).status());
  }
  std::string lines;
  for (const absl::Status& one : found) {
    if (!one.ok()) absl::StrAppend(&lines, std::string(one.message()), "\n");
  }
  return lines;
}

int Check(const CheckOptions& options) {
  const std::string& job_file = options.job_file;
  const absl::StatusOr<job::Job> job = ReadJobFile(job_file, options.overrides);
  if (!job.ok()) {
    std::fprintf(stderr, "%s\n", std::string(job.status().message()).c_str());
    return kExitWrongUse;
  }
  if (options.only_fingerprint) {
    std::printf("%016" PRIx64 "\n", Fingerprint(*job));
    return kExitDone;
  }
  if (const absl::Status model = worker::CheckJob(Resolve(*job)); !model.ok()) {
    std::fprintf(stderr, "%s: %s\n", job_file.c_str(), std::string(model.message()).c_str());
    return kExitWrongUse;
  }
  if (const absl::Status files = security::CheckCredentials(Resolve(*job), absl::Now()); !files.ok()) {
    std::fprintf(stderr, "%s\n", std::string(files.message()).c_str());
    return kExitWrongUse;
  }
  std::string warnings;
  if (const std::string doubt = SlowdownDoubt(*job); !doubt.empty())
    absl::StrAppend(&warnings, "# Warning: ", doubt, ".\n");
  if (const job::Job resolved = Resolve(*job); LeavesToScript(resolved)) {
    absl::StrAppend(&warnings,
                    "# Settings of `optimizer` that are not here are the script's (slackline.Optimizer(like=...)); ",
                    "without like=: ", OptimizerText(resolved.optimizer()), ".\n");
  }
  // A job file may be checked on a machine that has no data, or another network.
  const std::string not_here = WhyNotHere(Resolve(*job), options.purpose);
  if (!options.purpose.empty() && !not_here.empty()) {
    std::fprintf(stderr, "%s: %s", job_file.c_str(), not_here.c_str());
    return kExitFailed;
  }
  for (const absl::string_view reason : absl::StrSplit(not_here, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&warnings, "# On this machine it cannot run: ", reason, ".\n");
  }
  if (IsFileServer(job->data().path())) {
    const bool bytes_only = job->data().augment().rand_augment() > 0;
    absl::StrAppend(&warnings, "# Not looked at: ", job->data().path(), ". Workers read its index as they begin",
                    bytes_only ? ", and with data.augment.rand_augment refuse pixels other than uint8" : "",
                    "; `slackline doctor` reads it before.\n");
  }
  std::printf("%s%s%s# OK: %s is a valid job.\n", ToYaml(*job).c_str(), PriceOf(job->consistency()).c_str(),
              warnings.c_str(), job_file.c_str());
  return kExitDone;
}

}  // namespace

AddedCommand AddCheck(CLI::App& app, const char* /*program*/) {
  const auto options = std::make_shared<CheckOptions>();
  CLI::App* command = app.add_subcommand("check", "Check a job file without running it");
  AddJobFile(*command, options->job_file);
  AddOverrides(*command, options->overrides);
  command
      ->add_option("--for", options->purpose,
                   "Fail if this machine cannot train or simulate the job: images, weights, network, GPUs, programs")
      ->check(CLI::IsMember({"train", "simulate"}));
  command->add_flag("--fingerprint", options->only_fingerprint,
                    "Print only the number by which processes recognise their job");
  SetHelp(*command, kCheckHelp);
  return {command, [options] { return Check(*options); }};
}

}  // namespace slackline::cli
