// BatchCopies: copies the host's tensors to a device while the host continues. Uses LibTorch.
//
// LibTorch tracks when memory that it has pinned itself may be reused, but no other memory. A copy from a batch is
// therefore safe only if someone waits before the batch is overwritten.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>
#include <vector>

namespace slackline::worker {

// BatchCopies starts copies, and waits for them at the end of a Scope.
//
// Thread-safety: none.
// Copies:        to a device: 1; on a CPU: 0.
class BatchCopies {
 public:
  explicit BatchCopies(at::Device device) : device_(device) {}

  // Scope waits at its end until all copies that were started within it have read their source, also after an
  // exception. Work of the device on the copies may still be in progress. A device that has failed reads nothing any
  // more.
  class Scope {
   public:
    explicit Scope(BatchCopies& copies);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    BatchCopies& copies_;
  };

  // Copies `host` to the device, ordered before later work on its current stream. On a CPU returns `host` itself. Do
  // not call this while a step is recorded. Throws LibTorch's exceptions. Requires: within a Scope, until whose end the
  // memory of `host` must not change.
  at::Tensor ToDevice(const at::Tensor& host);

 private:
  void Await() noexcept;

  const at::Device device_;
  bool open_ = false;                // true within a Scope
  std::vector<at::Tensor> sources_;  // sources of copies that may be in progress
  std::optional<c10::Event> read_;   // event after the last copy
};

}  // namespace slackline::worker
