// Initialises weights in other ways than a network's reference does. Uses LibTorch.
#pragma once

#include <ATen/core/Generator.h>

#include "worker/model/layout.h"
#include "worker/model/model.h"
#include "worker/model/networks/flat_tensors.h"

namespace slackline::worker {

// Draws the weights of convolutions and fully connected layers again, in the layout's order, and sets biases to 0. All
// other tensors keep their values. The distributions are those of torch.nn.init's functions of the same names (kaiming
// for ReLU and by inputs; truncated normal cut at two deviations). Changes nothing for
// Initialisation::Kind::kReference.
void Reinitialise(const Initialisation& init, const Layout& layout, const FlatTensors& tensors,
                  at::Generator& generator);

}  // namespace slackline::worker
