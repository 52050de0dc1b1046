// Devices that a worker computes on: the wishes of the job file, resolved against the GPUs that exist.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/process/device.h"

namespace slackline::worker {

// GPUs that this process may use.
struct GpusHere {
  // Names of the GPUs, by index.
  std::vector<std::string> names;
  // Reason if there are no GPUs: the build, or the message of the driver.
  std::string why_none;
};

// Returns all GPUs, or one cpu if there are none.
std::vector<Device> AllOf(const GpusHere& here);

// Returns the devices that `wanted` names, in the format of worker.devices; the reader of the job file has checked its
// rules. Empty means one cpu. auto means all GPUs, or one cpu if there are none.
// `key`: setting of the job file that names the devices.
//   kFailedPrecondition  a GPU is not here; the message says which GPUs are, or why there are none
absl::StatusOr<std::vector<Device>> ResolveDevices(const std::vector<std::string>& wanted, const GpusHere& here,
                                                   const std::string& key = "worker.devices");

}  // namespace slackline::worker
