// The devices that a worker computes on: what the job file asks for, laid over what is there.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device.h"

namespace slackline::worker {

// The GPUs that this process may use.
struct GpusHere {
  // By index.
  std::vector<std::string> names;
  // Why there are none, where that is so: the build, or what the driver said.
  std::string why_none;
};

// All GPUs, or one cpu where there is none.
std::vector<Device> AllOf(const GpusHere& here);

// `wanted` as worker.devices has it, whose rules the job file's reader has checked. Empty means one cpu; auto all GPUs,
// or one cpu where there is none.
// `key`: where the job file has them.
//   kFailedPrecondition  a GPU that is not here; says which are, or why there is none
absl::StatusOr<std::vector<Device>> ResolveDevices(const std::vector<std::string>& wanted, const GpusHere& here,
                                                   const std::string& key = "worker.devices");

}  // namespace slackline::worker
