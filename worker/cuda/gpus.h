// The GPUs of this machine. A build without CUDA has the same functions, which say so (none.cc); so nobody else asks
// how this was built.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/devices.h"
#include "worker/group/local_group.h"

namespace slackline::worker::gpu {

GpusHere FindGpus();

// Where the GPUs of `devices` are on the PCI bus, as the driver writes it; what is no GPU, or is not known, is left
// out.
std::vector<std::string> PciAddresses(const std::vector<Device>& devices);

// A group over one GPU or several, which with options.stages are the stages of one model; buckets are its own. Initial
// weights are those that Model::Create() gives on a CPU.
//   kInvalidArgument     the spec cannot be built
//   kFailedPrecondition  this build has no CUDA
//   others               what CUDA, NCCL or LibTorch says, with the device's name
absl::StatusOr<std::unique_ptr<LocalGroup>> MakeGroup(const ModelSpec& spec, uint64_t seed,
                                                      const std::vector<Device>& devices, const GroupOptions& options);

}  // namespace slackline::worker::gpu
