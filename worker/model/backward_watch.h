// Takes gradients out of backward as it makes them, so that they can leave while the others are still being computed.
// LibTorch inside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/model/flat_tensors.h"
#include "worker/model/layout.h"
#include "worker/model/model.h"

namespace slackline::worker {

// Hooks into the network's trained tensors; LibTorch calls each hook once a backward, in the caller's thread.
//
// Thread-safety: none.
// Ownership:     borrows both; the tensors' hooks borrow this, so that it outlives the last backward.
class BackwardWatch {
 public:
  BackwardWatch(const Layout& layout, FlatTensors& tensors);
  BackwardWatch(const BackwardWatch&) = delete;
  BackwardWatch& operator=(const BackwardWatch&) = delete;

  // Forward is over: the averaged tensors have their values, and gradients follow. Borrows `ready` until End().
  void Begin(const Model::Ready& ready);
  // Backward is over: what it has not reached has no gradient.
  void End();

 private:
  class Hook;

  void Accumulated(size_t tensor);

  const Layout& layout_;
  FlatTensors& tensors_;
  const size_t trained_;  // tensors
  std::vector<bool> complete_;
  size_t first_complete_ = 0;  // it and all trained tensors behind it are
  const Model::Ready* ready_ = nullptr;
};

}  // namespace slackline::worker
