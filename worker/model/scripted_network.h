// Modules that torch.jit.script or torch.jit.trace has saved. LibTorch inside.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/model/flat_tensors.h"
#include "worker/model/layout.h"
#include "worker/model/network.h"

namespace slackline::worker {

// Loads libraries with operators, for good. A library that is loaded already is not loaded again.
//   kInvalidArgument  one does not load; says why
absl::Status LoadLibraries(const std::vector<std::string>& files);

// The tensors of the module in the file, under their names in state_dict, in their order: its parameters are trained,
// and its buffers of float32 are averaged. All others, counters as well as those of other types of floating point, each
// worker has for itself.
//   kInvalidArgument  it cannot be read, or does not do what is asked of it: says why
absl::StatusOr<Layout> MakeScriptedLayout(const ModelSpec& spec);

// Borrows `tensors`, which come from the layout of the same spec. Its weights begin as they are in the file. Throws
// what LibTorch throws.
std::unique_ptr<Network> MakeScriptedNetwork(const ModelSpec& spec, const FlatTensors& tensors);

}  // namespace slackline::worker
