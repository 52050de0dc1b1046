// Finds and uses the GPUs of this machine. A build without CUDA has the same functions, which report that (none.cc), so
// that callers need not know how the program was built.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/group/local_group.h"
#include "worker/machine/devices.h"

namespace slackline::worker::gpu {

GpusHere FindGpus();

// Returns the PCI bus addresses of the GPUs among `devices`, as the driver writes them. Devices that are no GPU, or
// whose address is unknown, are left out.
std::vector<std::string> PciAddresses(const std::vector<Device>& devices);

// Creates a group over one or several GPUs. With options.stages the GPUs are the stages of one model. The group chooses
// its own bucket sizes. Initial weights equal those that Model::Create() gives on a CPU.
//   kInvalidArgument     the spec cannot be built
//   kFailedPrecondition  this build has no CUDA
//   others               the message of CUDA, NCCL or LibTorch, with the device's name
absl::StatusOr<std::unique_ptr<LocalGroup>> MakeGroup(const ModelSpec& spec, uint64_t seed,
                                                      const std::vector<Device>& devices, const GroupOptions& options);

}  // namespace slackline::worker::gpu
