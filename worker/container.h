// A worker in a container of its own, as on Kubernetes: no other worker of the job computes on what it sees.
#pragma once

#include <cstdint>

#include "job.pb.h"
#include "worker/job_config.h"

namespace slackline::worker {

// The job as this group's container shows it: the container's GPUs are numbered from 0, so the group's first GPU is
// cuda:0 there, whatever the node and the job file call it. All else stays; so does a job without groups. Not for
// Fingerprint(): each group has another one.
job::Job InContainer(const job::Job& job, uint32_t group);

// Threads for each CPU device where the job does not say how many: of `cpus` processors, which the container may use.
void ShareProcessors(uint32_t cpus, WorkerConfig& config);

}  // namespace slackline::worker
