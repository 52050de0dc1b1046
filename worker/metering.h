// Meters of this worker's node, read while it works.
#pragma once

#include <memory>
#include <vector>

#include "common/metrics.h"
#include "common/power/energy_sampler.h"
#include "worker/devices.h"
#include "worker/job_config.h"

namespace slackline::worker {

// Null where the job wants none, or there is nothing to read: the log says why. Never fails.
// `devices`: that the worker computes on. Borrows `metrics`, which gets the node's series.
std::unique_ptr<power::EnergySampler> StartMetering(const WorkerConfig::Metering& metering,
                                                    const std::vector<Device>& devices, slackline::Metrics& metrics);

}  // namespace slackline::worker
