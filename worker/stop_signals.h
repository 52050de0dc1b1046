// Turns SIGTERM and SIGINT into calls on a separate thread.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace slackline::worker {

// Blocks the signals in this thread and in all threads that it starts from now on. Call it before there is a second
// thread.
void HoldStopSignals();

// Thread-safety: none.
// Threads:       one (waits for signals), born in the constructor, joined in the destructor.
class StopSignals {
 public:
  // Calls `handler` with the name of each signal, including signals that were blocked until now.
  explicit StopSignals(std::function<void(const std::string& name)> handler);
  ~StopSignals();

 private:
  std::thread thread_;
};

}  // namespace slackline::worker
