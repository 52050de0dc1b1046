// A network's tensors as named views into two flat vectors: what everybody agreed on, and what is pushed. LibTorch
// inside.
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

// A value as everybody agreed on it, and what this worker pushes for it: a gradient, or a value to be averaged.
struct AgreedTensor {
  at::Tensor agreed;
  at::Tensor pushed;
};

// Leaves a forward pass whose parameters do not come.
class ArrivalFailed : public std::exception {
 public:
  explicit ArrivalFailed(absl::Status status) : status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }
  const char* what() const noexcept override { return "the parameters did not arrive"; }

 private:
  absl::Status status_;
};

// Both vectors lie in the memory of one device; so does what is lent.
//
// Thread-safety: none.
// Ownership:     owns both vectors until UseParameters() and UsePush() lend others.
class FlatTensors {
 public:
  explicit FlatTensors(const Layout& layout, at::Device device = at::kCPU);
  FlatTensors(const FlatTensors&) = delete;
  FlatTensors& operator=(const FlatTensors&) = delete;

  // A leaf, for good, whose data follows UseParameters(); it needs a gradient unless it is frozen.
  // Requires: the layout has a parameter of that name.
  at::Tensor Trained(const std::string& name) const { return trained_.at(name).tensor.agreed; }
  bool Has(const std::string& name) const { return trained_.contains(name); }
  // Valid as long as this object; follows UseParameters() and UsePush(). Requires: the layout has such a buffer.
  const AgreedTensor& Averaged(const std::string& name) const { return averaged_.at(name).tensor; }

  at::Device device() const { return parameters_.device(); }
  absl::Span<float> parameters() const { return Flat(parameters_); }
  absl::Span<float> push() const { return Flat(push_); }
  // Requires: as many floats as push() has.
  void UsePush(absl::Span<float> memory);
  void UseParameters(absl::Span<float> memory);
  // From a device to another. Requires: the same layout.
  void CopyParameters(const FlatTensors& from);
  // From the host, and to it. From and to pinned memory a GPU copies later than these return.
  void WriteParameters(absl::Span<const float> from);
  void ReadPush(absl::Span<float> to) const;
  // By so much of the way. Requires: the same layout and device.
  void MoveTowards(const FlatTensors& to, double share);
  // Pushed buffers become what was agreed: the start of a step. What was left of gradients is dropped. Gradients that
  // backward makes are those of the loss times `loss_scale`, and are divided by it.
  void Begin(float loss_scale = 1);
  // Gradients of the backward passes that follow are added up in their places in push(), from zero on, until Begin().
  void AccumulateInPush();
  void DivideAccumulated(float loss_scale);
  // While it lives, trained tensors are read as they arrive. Null: they are there.
  class Arriving {
   public:
    // Requires: null, where there are averaged tensors, which Begin() copies.
    Arriving(FlatTensors& tensors, Arrival* arrival);
    ~Arriving() { tensors_.arrival_ = nullptr; }
    Arriving(const Arriving&) = delete;
    Arriving& operator=(const Arriving&) = delete;

   private:
    FlatTensors& tensors_;
  };
  // Waits for parameters()[0, end). Throws ArrivalFailed.
  void AwaitUpTo(uint64_t end) const {
    if (arrival_ == nullptr) return;
    if (absl::Status status = arrival_->AwaitUpTo(end); !status.ok()) throw ArrivalFailed(std::move(status));
  }
  // Where a trained tensor ends in parameters(). Requires: the layout has it.
  uint64_t EndOf(const std::string& name) const;
  // Moves the gradient that backward has made to its place in push(): one pass, where adding to zeros would be two.
  // Zeros, where there is none.
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
  // LibTorch allocates as its kernels like it: on cache lines.
  float loss_scale_ = 1;
  Arrival* arrival_ = nullptr;
  at::Tensor parameters_;
  at::Tensor push_;
  std::map<std::string, Placed> trained_;  // and frozen
  std::map<std::string, Placed> averaged_;
};

// What a layer passes before it reads its trained tensors, which may still be on their way.
//
// Ownership: borrows the tensors.
class Gate {
 public:
  Gate() = default;
  Gate(const FlatTensors& tensors, const std::vector<std::string>& names);

  // Throws ArrivalFailed.
  void Pass() const {
    if (tensors_ != nullptr) tensors_->AwaitUpTo(end_);
  }

 private:
  const FlatTensors* tensors_ = nullptr;
  uint64_t end_ = 0;
};

}  // namespace slackline::worker
