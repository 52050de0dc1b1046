// BackwardWatch: collects gradients as soon as backward has computed them, so that they can be sent while others are
// still being computed. Uses LibTorch.
#pragma once

#include <cstddef>
#include <vector>

#include "worker/model/layout.h"
#include "worker/model/model.h"
#include "worker/model/networks/flat_tensors.h"

namespace slackline::worker {

// BackwardWatch hooks into the network's trained tensors. LibTorch calls each hook once per backward pass, in the
// caller's thread.
//
// Thread-safety: none.
// Ownership:     borrows both arguments; the tensors' hooks borrow this object, which must outlive the last backward
//                pass.
class BackwardWatch {
 public:
  BackwardWatch(const Layout& layout, FlatTensors& tensors);
  BackwardWatch(const BackwardWatch&) = delete;
  BackwardWatch& operator=(const BackwardWatch&) = delete;

  // Begins after the forward pass: the averaged tensors have their values, and gradients follow. Borrows `ready` until
  // End().
  void Begin(const Model::Ready& ready);
  // Ends after the backward pass. Tensors that backward has not reached get no gradient, that is, zeros.
  void End();

 private:
  class Hook;

  void Accumulated(size_t tensor);

  const Layout& layout_;
  FlatTensors& tensors_;
  const size_t trained_;  // number of trained tensors
  std::vector<bool> complete_;
  size_t first_complete_ = 0;  // this trained tensor and all behind it are complete
  const Model::Ready* ready_ = nullptr;
};

}  // namespace slackline::worker
