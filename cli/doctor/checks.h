// Checks of facts against a job. Each function turns some facts into findings, and does nothing else.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "cli/doctor/facts.h"
#include "cli/doctor/finding.h"
#include "cli/doctor/load.h"
#include "job.pb.h"

namespace slackline::cli::doctor {

// Checks limits: open files, threads, memory that may be locked, address space.
Findings CheckLimits(const SystemFacts& system, const job::Job& job, const Load& load);
// Checks the memory that the processes need against that of the machine and its control groups; also huge pages, and
// memory shared between processes.
Findings CheckMemory(const SystemFacts& system, const job::Job& job, const Load& load);
// Checks the threads of the workers against those of the machine.
Findings CheckProcessors(const ProcessorFacts& processor, const job::Job& job, const Load& load);
Findings CheckClock(const ClockFacts& clock);
Findings CheckContainer(const SystemFacts& system, const job::Job& job);
Findings CheckGpu(const GpuFacts& gpu, const MemoryFacts& memory, const job::Job& job);
// Checks a folder that the run writes to. A healthy folder has two findings, its space and its speed.
Findings CheckDisk(const DiskFacts& disk, const job::Job& job, const Load& load);
Findings CheckPorts(const PortFacts& ports, const job::Job& job, const Load& load);
// Checks the link. `with` is the name of the other machine, or "itself".
Findings CheckLink(const LinkFacts& link, const std::string& with, const job::Job& job, const Load& load);
// Compares the clock at the other end of the link with the clock of `whose`.
Finding CheckClocks(const LinkFacts& link, const std::string& whose);

// Results of what was tried for the job.
struct JobTrials {
  absl::Status programs;
  // Status of the GPUs that the job names.
  absl::Status devices;
  absl::Status data;
  // Status of this machine's credential files now, and after `soon` has passed.
  absl::Status credentials;
  absl::Status credentials_soon;
  absl::Duration soon;
};
Findings CheckJob(const JobTrials& facts, const job::Job& job);
// Checks `config`, the output of `scontrol show config`.
Findings CheckSlurmConfig(const std::string& config, const job::Job& job);

}  // namespace slackline::cli::doctor
