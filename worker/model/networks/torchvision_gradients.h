// Gradients of torchvision's operators, which its library lacks. Uses LibTorch.
#pragma once

namespace slackline::worker {

// Registers the gradient of torchvision::roi_align, once in the process: torchvision itself has it in Python. The
// operators themselves come from torchvision's library, before or afterwards.
void RegisterTorchvisionGradients();

}  // namespace slackline::worker
