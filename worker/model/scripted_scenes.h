// Images with objects as modules of torchvision's kind take and return them. LibTorch inside.
//
//   forward(images: List[Tensor], targets: Optional[List[Dict[str, Tensor]]])
//   image  := float32 [channels, height, width], 0 to 1
//   target := boxes float32 [n, 4] (left, top, right, bottom), labels int64 [n], masks uint8 [n, height, width]
//   found  := boxes [n, 4], labels [n], scores [n], masks [n, height, width] or [n, 1, height, width], or none
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "absl/types/span.h"
#include "worker/model/scene.h"

namespace slackline::worker {

// Lists of tensors on `device`; on the CPU they borrow the scenes' memory.
c10::IValue ImagesOf(absl::Span<const Scene> scenes, at::Device device);
c10::IValue ObjectsOf(absl::Span<const Scene> scenes, at::Device device);

// What forward has returned of losses: itself, or the first of a tuple of losses and what was found, which is what
// torchvision's modules return when they are scripted.
c10::IValue LossesIn(const c10::IValue& made);

// What forward has returned for each of the scenes: a list, or the second of such a tuple. A mask is where its value is
// above a half. Throws where something else was returned, or a label that is not below `classes`.
std::vector<Found> FoundIn(const c10::IValue& made, absl::Span<const Scene> scenes, uint32_t classes);

}  // namespace slackline::worker
