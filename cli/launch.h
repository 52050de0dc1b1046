// `slackline launch`: a run on this machine whose workers are a script in Python.
#pragma once

#include <cstdint>
#include <optional>

#include "cli/script.h"
#include "cli/train.h"

namespace slackline::cli {

struct LaunchOptions {
  // Its job file, overrides, run folder.
  TrainOptions train;
  ScriptOptions script;
  // Else as the job file says.
  std::optional<uint32_t> servers;
  std::optional<uint32_t> workers;
};

// As Train(). Returns the exit code.
int Launch(const LaunchOptions& options);
// As Resume(). The workers are `script`; without one, the script that the run had, if it had any.
int Resume(const ResumeOptions& options, const ScriptOptions& script);

}  // namespace slackline::cli
