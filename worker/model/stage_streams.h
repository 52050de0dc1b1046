// How the stages of a model give their devices work, and what of it waits for what. LibTorch inside.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <vector>

namespace slackline::worker {

// On GPUs a stage has a stream of its own on which it computes, and others for what comes and goes, so that copies
// between devices pass beside what is computed; the host waits in WaitFor() and Finish() only. On CPUs all is done when
// it is said. Works on whatever device LibTorch has streams for.
//
// Thread-safety: each stage has a thread; what another stage's thread has said is known by a Point, which it hands
//                over. With no step under way, one thread for all.
// Errors:        LibTorch's exceptions.
class StageStreams {
 public:
  // By stage; of one kind.
  explicit StageStreams(const std::vector<at::Device>& devices);
  StageStreams(const StageStreams&) = delete;
  StageStreams& operator=(const StageStreams&) = delete;

  size_t stages() const { return devices_.size(); }
  at::Device device(size_t stage) const { return devices_[stage]; }
  bool on_host() const { return lanes_.empty(); }

  // `body`'s work goes behind what the stage was given before.
  void Compute(size_t stage, const std::function<void()>& body);
  // All that the stage was given so far. Null on CPUs.
  using Point = std::shared_ptr<const c10::Event>;
  Point Given(size_t stage);
  struct Way {
    size_t from = 0;
    size_t to = 0;
  };
  // What stage `from` had made at `made`, without its history, on the device of `to`, for what that computes from now
  // on. `tensor` may be dropped at once.
  at::Tensor Take(const at::Tensor& tensor, const Way& way, const Point& made);
  // Returns when a stage's device has done what it was given up to there.
  void WaitFor(const Point& point);
  // Returns when the stage's device has done all that it was given.
  void Finish(size_t stage);

 private:
  struct Lane {
    c10::Stream computing;
    c10::Stream coming;
    c10::Stream going_on;    // to the stage behind
    c10::Stream going_back;  // to the stage before
  };

  const std::vector<at::Device> devices_;
  std::vector<Lane> lanes_;  // by stage; none on CPUs
};

}  // namespace slackline::worker
