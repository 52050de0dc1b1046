// Runs modules that torch.jit.script or torch.jit.trace has saved. Uses LibTorch.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/model/layout.h"
#include "worker/model/networks/flat_tensors.h"
#include "worker/model/networks/network.h"

namespace slackline::worker {

// Loads libraries with operators permanently. A library that is already loaded is not loaded again.
//   kInvalidArgument  a library does not load; says why
absl::Status LoadLibraries(const std::vector<std::string>& files);

// Returns the tensors of the module in the file, under their names in state_dict and in their order. Parameters are
// trained, and float32 buffers are averaged. Each worker keeps all other tensors for itself: counters, and buffers of
// other floating-point types.
//   kInvalidArgument  the file cannot be read, or the module does not meet the requirements: says why
absl::StatusOr<Layout> MakeScriptedLayout(const ModelSpec& spec);

// Creates the network. Borrows `tensors`, which come from the layout of the same spec. Initial weights are those in the
// file. Throws LibTorch's exceptions.
std::unique_ptr<Network> MakeScriptedNetwork(const ModelSpec& spec, const FlatTensors& tensors);

}  // namespace slackline::worker
