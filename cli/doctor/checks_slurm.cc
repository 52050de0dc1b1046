#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/doctor/nodes.h"

namespace slackline::cli::doctor {
namespace {

using Config = std::map<std::string, std::string>;

// Below it a checkpoint of a large model is not whole in time.
constexpr uint32_t kKillWaitS = 30;

// Lines of "Name = value".
Config ParseConfig(const std::string& text) {
  Config config;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> sides = absl::StrSplit(line, absl::MaxSplits('=', 1));
    if (sides.size() != 2) continue;
    config[std::string(absl::StripAsciiWhitespace(sides[0]))] = std::string(absl::StripAsciiWhitespace(sides[1]));
  }
  return config;
}

std::string Value(const Config& config, const std::string& name) {
  const auto found = config.find(name);
  return found == config.end() ? "" : found->second;
}

// Of "30 sec"; nullopt where it is not said.
std::optional<uint32_t> SecondsOf(const Config& config, const std::string& name) {
  const std::vector<std::string> words = absl::StrSplit(Value(config, name), ' ');
  uint32_t seconds = 0;
  return absl::SimpleAtoi(words[0], &seconds) ? std::optional(seconds) : std::nullopt;
}

Finding Requeue(const Config& config) {
  const std::string value = Value(config, "JobRequeue");
  if (value != "0") return Fine("slurm requeue", absl::StrCat("JobRequeue=", value.empty() ? "not said" : value));
  return {Level::kWarning, "slurm requeue", "JobRequeue=0: jobs are not put back into the queue by themselves",
          "--requeue for this job",
          "`slackline slurm submit` and slurm/slackline.sbatch ask for it; a batch script of your own needs #SBATCH "
          "--requeue"};
}

Finding KillWait(const Config& config, const job::Job& job) {
  const std::optional<uint32_t> seconds = SecondsOf(config, "KillWait");
  if (!seconds) return Skipped("slurm KillWait", "not said");
  const std::string found = absl::StrCat("KillWait=", *seconds, " s");
  if (*seconds >= kKillWaitS) return Fine("slurm KillWait", found);
  return {Level::kWarning, "slurm KillWait", found,
          absl::StrCat(kKillWaitS, " s, for the checkpoint after scancel or a preemption without grace"),
          absl::StrCat("a shorter checkpoint.every_s (", job.checkpoint().every_s(),
                       " s): what was trained since the last one is lost then")};
}

Finding Preemption(const Config& config) {
  const std::string type = Value(config, "PreemptType"), mode = absl::AsciiStrToUpper(Value(config, "PreemptMode"));
  if (type.empty() || absl::StrContains(type, "none")) return Fine("slurm preemption", "none");
  const std::string found = absl::StrCat("PreemptMode=", mode);
  if (absl::StrContains(mode, "REQUEUE")) return Fine("slurm preemption", found);
  if (absl::StrContains(mode, "SUSPEND")) {
    return {Level::kWarning, "slurm preemption", found,
            "REQUEUE: a suspended run counts its members as dead when it goes on",
            "a partition with PreemptMode=REQUEUE or a QOS that is not preempted"};
  }
  if (absl::StrContains(mode, "CANCEL")) {
    return {Level::kWarning, "slurm preemption", found, "REQUEUE: a preempted job is not put back into the queue",
            "a partition or QOS with PreemptMode=REQUEUE; else `slackline slurm submit --resume --run-folder RUN` "
            "afterwards"};
  }
  return Fine("slurm preemption", found);
}

Finding Tracking(const Config& config) {
  const std::string type = Value(config, "ProctrackType");
  if (type.empty() || absl::StrContains(type, "cgroup"))
    return Fine("slurm process tracking", type.empty() ? "not said" : type);
  return {Level::kWarning, "slurm process tracking", type, "proctrack/cgroup, so that no process outlives a job",
          "look after a lost node for processes of slackline that still run; they end by themselves when they hear of "
          "nobody"};
}

Finding NodeTimeout(const Config& config) {
  const std::optional<uint32_t> seconds = SecondsOf(config, "SlurmdTimeout");
  return seconds ? Fine("slurm lost nodes",
                        absl::StrCat("SlurmdTimeout=", *seconds, " s; the run itself goes on after 20 s"))
                 : Skipped("slurm lost nodes", "SlurmdTimeout is not said");
}

}  // namespace

Findings CheckSlurmConfig(const std::string& text, const job::Job& job) {
  const Config config = ParseConfig(text);
  if (config.empty()) return {Skipped("slurm", "scontrol show config says nothing")};
  return {Requeue(config), KillWait(config, job), Preemption(config), Tracking(config), NodeTimeout(config)};
}

}  // namespace slackline::cli::doctor
