// Other beginnings of weights than those of a network's reference. LibTorch inside.
#pragma once

#include <ATen/core/Generator.h>

#include "worker/model/flat_tensors.h"
#include "worker/model/layout.h"
#include "worker/model/model.h"

namespace slackline::worker {

// Draws the weights of convolutions and fully connected layers again, in the layout's order, as torch.nn.init's
// functions of the same names do (kaiming for ReLU and by inputs; truncated normal cut at two deviations), and sets
// biases to 0. All other tensors stay. Changes nothing for Initialisation::Kind::kReference.
void Reinitialise(const Initialisation& init, const Layout& layout, const FlatTensors& tensors,
                  at::Generator& generator);

}  // namespace slackline::worker
