// Reads the meters of this worker's node while it works.
#pragma once

#include <memory>
#include <vector>

#include "common/metrics/metrics.h"
#include "common/power/energy_sampler.h"
#include "worker/machine/devices.h"
#include "worker/settings/job_config.h"

namespace slackline::worker {

// Meters the node for as long as the job says, before the worker loads anything. Returns nothing if the job wants none,
// or if there is nothing to read. `devices`: as for StartMetering().
power::IdlePower MeasureIdle(const WorkerConfig::Metering& metering, const std::vector<Device>& devices);

// Starts to read the meters. Returns null if the job wants none, or if there is nothing to read: the log says why.
// Never fails.
// `devices`: devices that the worker computes on. Borrows `metrics`, which gets the series of the node. `idle`: what
// MeasureIdle() returned.
std::unique_ptr<power::EnergySampler> StartMetering(const WorkerConfig::Metering& metering,
                                                    const std::vector<Device>& devices, slackline::Metrics& metrics,
                                                    power::IdlePower idle);

}  // namespace slackline::worker
