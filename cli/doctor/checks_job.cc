#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/doctor/checks.h"
#include "common/address.h"

namespace slackline::cli::doctor {

Findings CheckJob(const JobFacts& facts, const job::Job& job) {
  Findings findings;
  const auto add = [&](const char* check, const absl::Status& status, std::string fine, std::string needed,
                       std::string advice) {
    if (status.ok())
      findings.push_back(Fine(check, std::move(fine)));
    else
      findings.push_back({Level::kProblem, check, std::string(status.message()), std::move(needed), std::move(advice)});
  };
  add("programs", facts.programs, "all are beside this one", "all programs of one build in one folder",
      "in a checkout: cmake --build build/release --target slackline_programs; else install all into one folder");
  if (!facts.devices.ok()) {
    add("devices", facts.devices, "", "the GPUs that the job names, and a build with CUDA",
        "worker.devices: auto or cpu, or programs for GPUs (docs/gpu.md)");
  }
  add("data", facts.data, absl::StrCat("the images in ", job.data().path(), " can be read"),
      "images that every worker can read", "data.path, or apt-get install dataset-fashion-mnist for the default's");
  if (job.security().mode() == job::Security::NONE) {
    findings.push_back(
        IsLoopback(job.network().listen()) && job.network().interface().empty()
            ? Skipped("credentials", "security.mode is none: only this machine is listened to")
            : Finding{
                  Level::kWarning, "credentials", "none, and the job listens on a network", "security.mode: tls",
                  "slackline credentials DIR --job NAME, then security: {mode: tls, folder: DIR}; docs/security.md"});
    return findings;
  }
  if (facts.credentials.ok() && !facts.credentials_soon.ok()) {
    findings.push_back({Level::kWarning, "credentials",
                        absl::StrCat("not valid any more in ", absl::ToInt64Hours(facts.soon) / 24,
                                     " days: ", facts.credentials_soon.message()),
                        "certificates that outlive the run", "slackline credentials DIR --job NAME --renew"});
    return findings;
  }
  add("credentials", facts.credentials, "valid, and only yours", "files that this job can use",
      "slackline credentials; docs/security.md");
  return findings;
}

}  // namespace slackline::cli::doctor
