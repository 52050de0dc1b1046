// What training without labels makes small, of several views of the images of a batch. LibTorch inside.
//
// Rows are (views x n) x width: the first view of all images, then the second, and so on; their lengths do not count.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace slackline::worker {

// Rows of length 1, or 0.
at::Tensor OfLengthOne(const at::Tensor& rows);

// NT-Xent (Chen et al. 2020, equation 1): the softmax cross-entropy of finding an image's other view among all other
// rows by cosine / temperature, as a mean over rows. Of more than two views the mean over the other ones of an image.
// Requires: views > 1.
at::Tensor ContrastiveLoss(const at::Tensor& projections, int64_t views, double temperature);

// BYOL's (Grill et al. 2020, equation 2): 2 - 2 cosine of a view's prediction and what the teacher makes of another
// view, as a mean over images, summed over both orders of two views; of more views twice the mean over all pairs.
// Requires: views > 1.
at::Tensor DistillationLoss(const at::Tensor& predictions, const at::Tensor& targets, int64_t views);

}  // namespace slackline::worker
