// `slackline doctor`: looks at a machine, or at the nodes of an allocation, before a run, and says what to mend.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/doctor/report.h"
#include "job.pb.h"

namespace slackline::cli::doctor {

struct DoctorOptions {
  // Empty: a job of defaults.
  std::string job_file;
  std::vector<std::string> overrides;
  // Where the run is to be; empty: output.folder, or runs in the working directory.
  std::string run_folder;
  // Of the model; 0: as far as the job file and its data say.
  uint64_t parameters = 0;
  uint32_t disk_megabytes = 32;
  bool json = false;
  // Of a task of a step of SLURM: the doctor that asks, and what it must be told first.
  std::string report_to;
  std::string token;
  uint32_t nodes = 0;
};

// Prints, and returns the exit code: 0 without problems, 1 with, 2 wrong use.
int Doctor(const DoctorOptions& options);

// Everything but other machines. `job` is resolved.
Examined ExamineHere(const DoctorOptions& options, const job::Job& job, uint32_t nodes);

}  // namespace slackline::cli::doctor
