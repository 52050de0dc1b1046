// Tensors of the host on their way to a device, beside which the host goes on. LibTorch inside.
//
// LibTorch knows of memory that it has pinned itself when it may be used again, and of no other: a copy from a batch is
// safe only because somebody waits before the batch is written again.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>
#include <vector>

namespace slackline::worker {

// Thread-safety: none.
// Copies: to a device: 1; on a CPU: 0.
class BatchCopies {
 public:
  explicit BatchCopies(at::Device device) : device_(device) {}

  // What is copied while it lives has been read when it is gone, also where an exception ends it; what the device makes
  // of it may be under way. A device that has failed reads nothing any more.
  class Scope {
   public:
    explicit Scope(BatchCopies& copies);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    BatchCopies& copies_;
  };

  // `host` on the device, in what its current stream has from now on; on a CPU `host` itself. Not while a step is
  // recorded. Throws what LibTorch throws. Requires: within a Scope, until whose end the memory of `host` stays as it
  // is.
  at::Tensor ToDevice(const at::Tensor& host);

 private:
  void Await() noexcept;

  const at::Device device_;
  bool open_ = false;                // within a Scope
  std::vector<at::Tensor> sources_;  // of copies that may be under way
  std::optional<c10::Event> read_;   // behind the last one
};

}  // namespace slackline::worker
