// What the workers say the model and the data are: all must say the same. Pure.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler.pb.h"

namespace slackline::scheduler {

struct ModelLayout {
  // Length of the flat parameter vector, and how much of its beginning gradients train.
  uint64_t elements = 0;
  uint64_t trained_elements = 0;
  uint64_t train_samples = 0;
  uint64_t test_samples = 0;
};

// Counts what `request` declares.
//   kInvalidArgument  no tensors, none trained, a trained one behind a buffer, too many elements, no samples
absl::StatusOr<ModelLayout> LayoutOf(const wire::RegisterWorkerRequest& request);

// OK when the worker has built the same model and sees the same data as `first`.
//   kInvalidArgument  names the first difference
absl::Status CheckSame(const wire::RegisterWorkerRequest& first, const wire::RegisterWorkerRequest& other);

}  // namespace slackline::scheduler
