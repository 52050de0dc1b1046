// Products in lower precision, by LibTorch's autocast: weights and what is summed stay float32.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "absl/status/status.h"
#include "worker/model/model.h"

namespace slackline::worker {

// While it lives, forward passes of this thread on `device` multiply in `precision`. For float32 it does nothing.
// Backward follows what forward has done, and comes after it.
//
// Thread-safety: none; one a thread at a time.
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

// While it lives, this thread multiplies on `device` in float32, whatever Autocast is around it.
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

// Whether `device` computes in `precision`; tries it where that is in doubt.
//   kInvalidArgument  it does not; says what is allowed
absl::Status CheckPrecision(at::Device device, Precision precision);

}  // namespace slackline::worker
