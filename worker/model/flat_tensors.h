// A network's tensors as named views into two flat vectors: what everybody agreed on, and what is pushed. LibTorch
// inside.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "absl/types/span.h"
#include "worker/model/layout.h"

namespace slackline::worker {

// A value that is averaged, not descended, exists twice: as everybody agreed on it, and as this worker pushes it.
struct AveragedTensor {
  at::Tensor agreed;
  at::Tensor pushed;
};

// Thread-safety: none.
// Ownership:     owns both vectors until UseParameters() and UsePush() lend others.
class FlatTensors {
 public:
  explicit FlatTensors(const Layout& layout);
  FlatTensors(const FlatTensors&) = delete;
  FlatTensors& operator=(const FlatTensors&) = delete;

  // A leaf, for good, whose data follows UseParameters(); its gradient is a view of push(), so that backward adds to it
  // in place.
  // Requires: the layout has a trained tensor of that name.
  at::Tensor Trained(const std::string& name) const { return trained_.at(name).tensor; }
  // Valid as long as this object; follows UseParameters() and UsePush(). Requires: the layout has such a buffer.
  const AveragedTensor& Averaged(const std::string& name) const { return averaged_.at(name).tensor; }

  absl::Span<float> parameters() const { return Flat(parameters_); }
  absl::Span<float> push() const { return Flat(push_); }
  // Requires: as many floats as push() has.
  void UsePush(absl::Span<float> memory);
  void UseParameters(absl::Span<float> memory);
  // Gradients become 0, pushed buffers what was agreed: the start of a step.
  void ResetPush();

 private:
  template <typename Tensor>
  struct Placed {
    TensorInfo info;
    Tensor tensor;
  };

  static absl::Span<float> Flat(const at::Tensor& flat) {
    return {flat.data_ptr<float>(), static_cast<size_t>(flat.numel())};
  }
  void PointIntoPush();

  const uint64_t trained_elements_;
  // LibTorch allocates as its kernels like it: on cache lines.
  at::Tensor parameters_;
  at::Tensor push_;
  std::map<std::string, Placed<at::Tensor>> trained_;
  std::map<std::string, Placed<AveragedTensor>> averaged_;
};

}  // namespace slackline::worker
