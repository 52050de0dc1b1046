// FlatTensors: a network's tensors as named views into two flat vectors, the agreed values and the pushed values. Uses
// LibTorch.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "worker/model/layout.h"
#include "worker/model/model.h"

namespace slackline::worker {

// A value that all workers have agreed on, and this worker's push for it: a gradient, or a value to be averaged.
struct AgreedTensor {
  at::Tensor agreed;
  at::Tensor pushed;
};

// ArrivalFailed ends a forward pass whose parameters do not arrive.
class ArrivalFailed : public std::exception {
 public:
  explicit ArrivalFailed(absl::Status status) : status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }
  const char* what() const noexcept override { return "the parameters did not arrive"; }

 private:
  absl::Status status_;
};

// FlatTensors holds both vectors in the memory of one device. Lent memory must be on the same device.
//
// Thread-safety: none.
// Ownership:     owns both vectors until UseParameters() and UsePush() lend others.
class FlatTensors {
 public:
  explicit FlatTensors(const Layout& layout, at::Device device = at::kCPU);
  FlatTensors(const FlatTensors&) = delete;
  FlatTensors& operator=(const FlatTensors&) = delete;

  // Returns a trained or frozen tensor: an autograd leaf that stays valid and whose data follows UseParameters(). The
  // leaf needs a gradient unless it is frozen.
  // Requires: the layout has a parameter of that name.
  at::Tensor Trained(const std::string& name) const { return trained_.at(name).tensor.agreed; }
  bool Has(const std::string& name) const { return trained_.contains(name); }
  // Returns an averaged tensor, which is valid as long as this object and follows UseParameters() and UsePush().
  // Requires: the layout has such a buffer.
  const AgreedTensor& Averaged(const std::string& name) const { return averaged_.at(name).tensor; }

  at::Device device() const { return parameters_.device(); }
  absl::Span<float> parameters() const { return Flat(parameters_); }
  absl::Span<float> push() const { return Flat(push_); }
  // Lend other memory. Require: the same number of floats as before.
  void UsePush(absl::Span<float> memory);
  void UseParameters(absl::Span<float> memory);
  // Copies parameters from another device. Requires: the same layout.
  void CopyParameters(const FlatTensors& from);
  // Copy from and to host memory. If that memory is pinned, a GPU copies after the call has returned.
  void WriteParameters(absl::Span<const float> from);
  void ReadPush(absl::Span<float> to) const;
  // Moves the parameters by `share` of the way to those of `to`. Requires: the same layout and device.
  void MoveTowards(const FlatTensors& to, double share);
  // Begins a step: copies the agreed buffers to the pushed ones, and drops old gradients. Backward computes the
  // gradients of the loss times `loss_scale`; they are divided by it.
  void Begin(float loss_scale = 1);
  // Makes later backward passes add up their gradients in place in push(), from zero on, until Begin().
  void AccumulateInPush();
  void DivideAccumulated(float loss_scale);
  // Arriving makes the network read trained tensors as they arrive, as long as it exists. Null: all tensors are
  // present.
  class Arriving {
   public:
    // Requires: `arrival` is null if there are averaged tensors, since Begin() copies those.
    Arriving(FlatTensors& tensors, Arrival* arrival);
    ~Arriving() { tensors_.arrival_ = nullptr; }
    Arriving(const Arriving&) = delete;
    Arriving& operator=(const Arriving&) = delete;

   private:
    FlatTensors& tensors_;
  };
  // Blocks until parameters()[0, end) have arrived. Throws ArrivalFailed.
  void AwaitUpTo(uint64_t end) const {
    if (arrival_ == nullptr) return;
    if (absl::Status status = arrival_->AwaitUpTo(end); !status.ok()) throw ArrivalFailed(std::move(status));
  }
  // Returns the end of a trained tensor in parameters(). Requires: the layout has it.
  uint64_t EndOf(const std::string& name) const;
  // Moves the gradient that backward has computed to its place in push(), or writes zeros if there is none. This takes
  // one pass; adding to zeros would take two.
  void MoveGradient(const std::string& name);

 private:
  struct Placed {
    TensorInfo info;
    AgreedTensor tensor;
  };

  static absl::Span<float> Flat(const at::Tensor& flat) {
    return {flat.data_ptr<float>(), static_cast<size_t>(flat.numel())};
  }
  at::Tensor Lent(absl::Span<float> memory) const;
  void PointIntoPush();

  const uint64_t trained_elements_;
  uint64_t averaged_elements_ = 0;
  float loss_scale_ = 1;
  Arrival* arrival_ = nullptr;
  // Flat vectors are allocated by LibTorch, which aligns them to cache lines for its kernels.
  at::Tensor parameters_;
  at::Tensor push_;
  std::map<std::string, Placed> trained_;  // includes frozen tensors
  std::map<std::string, Placed> averaged_;
};

// Gate makes a layer wait for its trained tensors, which may still be arriving.
//
// Ownership: borrows the tensors.
class Gate {
 public:
  Gate() = default;
  Gate(const FlatTensors& tensors, const std::vector<std::string>& names);

  // Blocks until the tensors have arrived. Throws ArrivalFailed.
  void Pass() const {
    if (tensors_ != nullptr) tensors_->AwaitUpTo(end_);
  }

 private:
  const FlatTensors* tensors_ = nullptr;
  uint64_t end_ = 0;
};

}  // namespace slackline::worker
