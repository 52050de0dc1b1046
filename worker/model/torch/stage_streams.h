// StageStreams: enqueues the work of a model's stages on their devices, and orders work that depends on other work.
// Uses LibTorch.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <vector>

namespace slackline::worker {

// StageStreams gives each stage on a GPU one stream for computing and other streams for incoming and outgoing copies,
// so that copies between devices overlap with computing. The host waits only in WaitFor() and Finish(). On CPUs all
// work is done at once. Works on every device for which LibTorch has streams.
//
// Thread-safety: each stage has a thread. A thread learns about another stage's work through a Point that the other
// thread hands over. With no step in progress, one thread for all.
// Errors:        LibTorch's exceptions.
class StageStreams {
 public:
  // Creates the streams. `devices`: one per stage, all of one kind.
  explicit StageStreams(const std::vector<at::Device>& devices);
  StageStreams(const StageStreams&) = delete;
  StageStreams& operator=(const StageStreams&) = delete;

  size_t stages() const { return devices_.size(); }
  at::Device device(size_t stage) const { return devices_[stage]; }
  bool on_host() const { return lanes_.empty(); }

  // Enqueues the work of `body` behind the stage's earlier work.
  void Compute(size_t stage, const std::function<void()>& body);
  // A point after all work that a stage has so far. Null on CPUs.
  using Point = std::shared_ptr<const c10::Event>;
  Point Given(size_t stage);
  struct Way {
    size_t from = 0;
    size_t to = 0;
  };
  // Copies a tensor that stage `from` had computed at `made`, without its history, to the device of `to`, for that
  // stage's later work. `tensor` may be dropped at once.
  at::Tensor Take(const at::Tensor& tensor, const Way& way, const Point& made);
  // Blocks until the stage's device has finished the work before the point.
  void WaitFor(const Point& point);
  // Blocks until the stage's device has finished all its work.
  void Finish(size_t stage);

 private:
  struct Lane {
    c10::Stream computing;
    c10::Stream coming;
    c10::Stream going_on;    // copies to the next stage
    c10::Stream going_back;  // copies to the previous stage
  };

  const std::vector<at::Device> devices_;
  std::vector<Lane> lanes_;  // indexed by stage; empty on CPUs
};

}  // namespace slackline::worker
