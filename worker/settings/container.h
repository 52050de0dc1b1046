// Settings of a worker in its own container, for example on Kubernetes. No other worker of the job computes on the GPUs
// and cores that the container shows.
#pragma once

#include <cstdint>

#include "job.pb.h"
#include "worker/settings/job_config.h"

namespace slackline::worker {

// Returns the job as the container of this group shows it. A container numbers its GPUs from 0, so the first GPU of the
// group is cuda:0 there, whatever the node and the job file call it. All else stays the same; so does a job without
// groups. Do not use the result for Fingerprint(): it differs between groups.
job::Job InContainer(const job::Job& job, uint32_t group);

// Sets the number of threads for each CPU device, if the job does not set it: divides `cpus`, the number of processors
// that the container may use.
void ShareProcessors(uint32_t cpus, WorkerConfig& config);

}  // namespace slackline::worker
