// Tries what a job needs on each machine: programs, data, credentials.
#pragma once

#include <cstdint>
#include <optional>

#include "cli/doctor/checks.h"
#include "job.pb.h"

namespace slackline::cli::doctor {

struct JobProbe {
  JobTrials facts;
  // Number of parameters of the model that the job trains on its data; nullopt if it cannot be determined.
  std::optional<uint64_t> parameters;
};

// Reads all images once.
JobProbe ProbeJob(const job::Job& job);

}  // namespace slackline::cli::doctor
