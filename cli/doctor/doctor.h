// `slackline doctor`: examines a machine, or the nodes of an allocation, before a run, and says what to mend.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/doctor/report.h"
#include "job.pb.h"

namespace slackline::cli::doctor {

struct DoctorOptions {
  // Path of the job file. Empty: a job with default settings.
  std::string job_file;
  std::vector<std::string> overrides;
  // Folder of the planned run. Empty: output.folder, or runs in the working directory.
  std::string run_folder;
  // Number of the model's parameters. 0: as far as the job file and its data say.
  uint64_t parameters = 0;
  uint32_t disk_megabytes = 32;
  bool json = false;
  // Set only for a task of a SLURM step: address of the doctor to report to, and the token to send to it first.
  std::string report_to;
  std::string token;
  uint32_t nodes = 0;
};

// Examines, prints, and returns the exit code: 0 without problems, 1 with problems, 2 for wrong use.
int Doctor(const DoctorOptions& options);

// Examines everything except other machines. `job` must be resolved.
Examined ExamineHere(const DoctorOptions& options, const job::Job& job, uint32_t nodes);

}  // namespace slackline::cli::doctor
