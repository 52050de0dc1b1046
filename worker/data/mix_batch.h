// mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019): images of a batch, and their labels, in pairs.
#pragma once

#include "worker/data/augment.h"
#include "worker/model/model.h"

namespace slackline::worker {

// Each image is mixed with the one before it in the batch, the first with the last; all by one share, drawn from
// Beta(a, a), as the papers' authors and torchvision do it. What is drawn follows from the seed, the epoch and the
// batch's images in their order. Sets batch.other_labels and batch.share. `batch`: images of `shape`, normalised.
// Requires: variation.augment.mixes().
void MixBatch(const Variation& variation, const ImageShape& shape, Batch& batch);

// From Beta(alpha, alpha), in [0, 1].
double DrawBeta(SplitMix64& random, double alpha);

}  // namespace slackline::worker
