// What a device was given in a step, kept so that it can be given again as one.
#pragma once

#include <functional>

namespace slackline::worker {

// Thread-safety: none; one thread steps.
class StepRecorder {
 public:
  virtual ~StepRecorder() = default;

  // What `body` gives the device goes onto stream().
  virtual void OnStream(const std::function<void()>& body) = 0;
  // A cudaStream_t.
  virtual void* stream() const = 0;
  // Keeps what `work` gives the device, in the place of what was kept before, and does not let it be done. Throws what
  // `work` throws, or LibTorch; then nothing is kept. Both from OnStream().
  virtual void Record(const std::function<void()>& work) = 0;
  // Has the device do what is kept, in the same memory, behind what else it was given. Requires: something is.
  virtual void Replay() = 0;
};

}  // namespace slackline::worker
