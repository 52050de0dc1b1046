// StepRecorder: records the work that a step gives to a device, so that it can be replayed as a whole.
#pragma once

#include <functional>

namespace slackline::worker {

// StepRecorder keeps at most one recording.
//
// Thread-safety: none; one thread steps.
class StepRecorder {
 public:
  virtual ~StepRecorder() = default;

  // Runs `body` with its device work on stream().
  virtual void OnStream(const std::function<void()>& body) = 0;
  // Returns a cudaStream_t.
  virtual void* stream() const = 0;
  // Records the device work of `work` instead of executing it, and replaces the previous recording. Throws the
  // exceptions of `work` and of LibTorch; then nothing is recorded. Call Record() and Replay() within OnStream().
  virtual void Record(const std::function<void()>& work) = 0;
  // Executes the recording in the same memory, after the device's earlier work. Requires: a recording.
  virtual void Replay() = 0;
};

}  // namespace slackline::worker
