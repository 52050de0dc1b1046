// Multiplies in lower precision, by LibTorch's autocast. Weights and sums stay float32.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "absl/status/status.h"
#include "worker/model/model.h"

namespace slackline::worker {

// Autocast makes forward passes of this thread on `device` multiply in `precision` as long as it exists. It does
// nothing for float32. Backward uses the precisions that forward used, and runs after the Autocast has ended.
//
// Thread-safety: none; at most one per thread at a time.
class Autocast {
 public:
  Autocast(at::Device device, Precision precision);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  struct Before {
    bool enabled = false, cached = false;
    at::ScalarType type = at::kFloat;
  };

  const at::Device device_;
  std::optional<Before> before_;
};

// NoAutocast makes this thread multiply on `device` in float32 as long as it exists, inside any Autocast.
class NoAutocast {
 public:
  explicit NoAutocast(at::Device device);
  ~NoAutocast();
  NoAutocast(const NoAutocast&) = delete;
  NoAutocast& operator=(const NoAutocast&) = delete;

 private:
  const at::Device device_;
  const bool before_;
};

// Checks that `device` computes in `precision`, by a trial if that is unclear.
//   kInvalidArgument  the device does not; says what is allowed
absl::Status CheckPrecision(at::Device device, Precision precision);

}  // namespace slackline::worker
