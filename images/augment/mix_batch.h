// Mixes the images of a batch, and their labels, in pairs: mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019).
#pragma once

#include "images/augment/augment.h"
#include "images/base/batch.h"

namespace slackline::images {

// Mixes each image with the one before it in the batch, and the first with the last. All pairs use one share, drawn
// from Beta(a, a), as the papers' authors and torchvision do. The draws depend on the seed, the epoch and the order of
// the batch's images. Sets batch.other_labels and batch.share. `batch`: images of `shape`, normalised.
// Requires: variation.augment.mixes().
void MixBatch(const Variation& variation, const ImageShape& shape, Batch& batch);

// Draws from Beta(alpha, alpha), in [0, 1].
double DrawBeta(SplitMix64& random, double alpha);

}  // namespace slackline::images
