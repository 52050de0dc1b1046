// `slackline launch`: runs a job on this machine with a Python script as its workers.
#pragma once

#include <cstdint>
#include <optional>

#include "cli/commands/train.h"
#include "cli/run/script.h"

namespace slackline::cli {

struct LaunchOptions {
  // Job file, overrides and run folder.
  TrainOptions train;
  ScriptOptions script;
  // Numbers of servers and workers. Absent: as the job file says.
  std::optional<uint32_t> servers;
  std::optional<uint32_t> workers;
  // Number of scripts on this machine, each with its part of the GPUs and cores. Absent: as the job file says.
  std::optional<uint32_t> per_node;
  // The scripts of this machine are one worker.
  bool node_group = false;
};

// Does what Train() does, with the script as the workers. Returns the exit code.
int Launch(const LaunchOptions& options);
// Does what the other Resume() does, with `script` as the workers. Without a script, the run keeps the one that it had,
// if any.
int Resume(const ResumeOptions& options, const ScriptOptions& script);

}  // namespace slackline::cli
