// What a run that goes on must have in common with what it was.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "job.pb.h"

namespace slackline::cli {

// The weights of a checkpoint are those of one model. `before`: the job that it was made in; `after`: the one to go on
// with.
//   kInvalidArgument  every field of `model` that differs, one a line
absl::Status CheckModelKept(const job::Job& before, const job::Job& after);

// A checkpoint's place in an epoch counts `samples` training images, whose fingerprint is `fingerprint` (0: not known).
// Looks at what is cheap to know: the index of prepared images, and data.train_images_max; of other data the workers
// say it when they join.
//   kInvalidArgument  there are more or fewer now, or others, and data.replaces does not say so
absl::Status CheckImagesKept(uint64_t samples, uint64_t fingerprint, const job::Job& after);

}  // namespace slackline::cli
