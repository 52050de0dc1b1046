// What facts mean for a job: each function turns some facts into findings, and does nothing else.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/doctor/facts.h"
#include "cli/doctor/finding.h"
#include "cli/doctor/load.h"
#include "job.pb.h"

namespace slackline::cli::doctor {

// Numbers of descriptors and threads, memory that may be locked, addresses.
Findings CheckLimits(const SystemFacts& system, const job::Job& job, const Load& load);
// What the processes need, against what the machine and its control groups have; pages; sharing.
Findings CheckMemory(const SystemFacts& system, const job::Job& job, const Load& load);
// Threads of the workers against those of the machine.
Findings CheckProcessors(const ProcessorFacts& processor, const job::Job& job, const Load& load);
Findings CheckClock(const ClockFacts& clock);
Findings CheckContainer(const SystemFacts& system, const job::Job& job);
Findings CheckGpu(const GpuFacts& gpu, const MemoryFacts& memory, const job::Job& job);
// One finding a folder that is as it should be.
Findings CheckDisk(const DiskFacts& disk, const job::Job& job, const Load& load);
Findings CheckPorts(const PortFacts& ports, const job::Job& job, const Load& load);
// `with`: the other machine, or "itself".
Findings CheckLink(const LinkFacts& link, const std::string& with, const job::Job& job, const Load& load);
// Of the other end of the link, beside that of `whose`.
Finding CheckClocks(const LinkFacts& link, const std::string& whose);

// What was tried, and what came of it.
struct JobFacts {
  absl::Status programs;
  // Of the GPUs that the job names.
  absl::Status devices;
  absl::Status data;
  // With the files of this machine as they are now, and as they will be in `soon`.
  absl::Status credentials;
  absl::Status credentials_soon;
  absl::Duration soon;
};
Findings CheckJob(const JobFacts& facts, const job::Job& job);

}  // namespace slackline::cli::doctor
