// The nodes of an allocation of SLURM: a doctor on each, started by srun, which reports to the one that was called.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/doctor/doctor.h"
#include "cli/slurm/allocation.h"

namespace slackline::cli::doctor {

// All nodes, with the links between them, and what matters of SLURM's own settings.
//   kFailedPrecondition  not in an allocation, or a task of a step
//   kUnavailable         srun has failed; its last words
absl::StatusOr<std::vector<Examined>> ExamineAllocation(const DoctorOptions& options, const job::Job& job);

// Whether this runs as a task of a step, as in `srun slackline doctor`: it then looks at its own node alone.
bool IsTask(const slurm::Environment& environment);

// On a node: connects to options.report_to, and answers until it is told that it is the end.
absl::Status ReportTo(const DoctorOptions& options, const job::Job& job, const Examined& here);

// Of `scontrol show config`.
Findings CheckSlurmConfig(const std::string& config, const job::Job& job);

}  // namespace slackline::cli::doctor
