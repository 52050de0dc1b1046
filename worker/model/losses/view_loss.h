// Losses for training without labels, on several views of a batch's images. Uses LibTorch.
//
// Rows are (views x n) x width: the first view of all images, then the second, and so on. The lengths of rows do not
// matter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace slackline::worker {

// Returns the rows scaled to length 1; zero rows stay 0.
at::Tensor OfLengthOne(const at::Tensor& rows);

// Returns NT-Xent (Chen et al. 2020, equation 1): the softmax cross-entropy of finding an image's other view among all
// other rows by cosine / temperature, as a mean over rows. With more than two views, the loss of a row is the mean over
// the image's other views.
// Requires: views > 1.
at::Tensor ContrastiveLoss(const at::Tensor& projections, int64_t views, double temperature);

// Returns BYOL's loss (Grill et al. 2020, equation 2): 2 - 2 cosine between a view's prediction and the teacher's
// output for another view, as a mean over images, summed over both orders of two views. With more views, the loss is
// twice the mean over all pairs.
// Requires: views > 1.
at::Tensor DistillationLoss(const at::Tensor& predictions, const at::Tensor& targets, int64_t views);

}  // namespace slackline::worker
