// Examination of a SLURM allocation: srun starts a doctor on each node, and each reports to the doctor that the user
// called.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/doctor/doctor.h"
#include "cli/slurm/allocation.h"

namespace slackline::cli::doctor {

// Examines all nodes, the links between them, and those of SLURM's own settings that matter.
//   kFailedPrecondition  not in an allocation, or a task of a step
//   kUnavailable         srun cannot be started; if srun itself fails, a finding has its last words
absl::StatusOr<std::vector<Examined>> ExamineAllocation(const DoctorOptions& options, const job::Job& job);

// True if this process runs as a task of a step, as in `srun slackline doctor`. It then examines only its own node.
bool IsTask(const slurm::Environment& environment);

// Runs on a node: connects to options.report_to, and answers until the other end says that it is the end.
absl::Status ReportTo(const DoctorOptions& options, const job::Job& job, const Examined& here);

}  // namespace slackline::cli::doctor
