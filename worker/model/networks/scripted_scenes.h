// Converts images with objects to and from the format of torchvision's modules. Uses LibTorch.
//
//   forward(images: List[Tensor], targets: Optional[List[Dict[str, Tensor]]])
//   image  := float32 [channels, height, width], 0 to 1
//   target := boxes float32 [n, 4] (left, top, right, bottom), labels int64 [n], masks uint8 [n, height, width]
//   found  := boxes [n, 4], labels [n], scores [n], masks [n, height, width] or [n, 1, height, width], or none
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "absl/types/span.h"
#include "images/base/scene.h"

namespace slackline::worker {

// Return lists of tensors on `device`; on the CPU the tensors borrow the scenes' memory.
c10::IValue ImagesOf(absl::Span<const images::Scene> scenes, at::Device device);
c10::IValue ObjectsOf(absl::Span<const images::Scene> scenes, at::Device device);

// Returns the losses in forward's result: the result itself, or the first element of a tuple of losses and findings.
// Scripted modules of torchvision return such a tuple.
c10::IValue LossesIn(const c10::IValue& made);

// Returns forward's findings for each scene, from a list, or from the second element of such a tuple. A mask covers the
// pixels whose value is above 0.5. Throws if something else was returned, or a label that is not below `classes`.
std::vector<images::DetectedObjects> FoundIn(const c10::IValue& made, absl::Span<const images::Scene> scenes,
                                             uint32_t classes);

}  // namespace slackline::worker
