// Checks that a resumed run keeps what it must have in common with the original run.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "job.pb.h"

namespace slackline::cli {

// Checks that both jobs have the same model: a checkpoint holds the weights of one model. `before` is the job that made
// the checkpoint, `after` the job that continues from it.
//   kInvalidArgument  lists every field of `model` that differs, one per line
absl::Status CheckModelKept(const job::Job& before, const job::Job& after);

// Checks that the training images are the same. A checkpoint's place in an epoch counts `samples` training images,
// whose fingerprint is `fingerprint` (0: not known). Checks only what is cheap to know: the index of prepared images,
// and data.train_images_max. For other data, the workers report a mismatch when they join.
//   kInvalidArgument  there are more or fewer images now, or others, and data.replaces does not allow the others
absl::Status CheckImagesKept(uint64_t samples, uint64_t fingerprint, const job::Job& after);

}  // namespace slackline::cli
