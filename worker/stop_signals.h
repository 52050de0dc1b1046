// Turns SIGTERM and SIGINT into a call on a thread of its own.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace slackline::worker {

// Holds the signals back in this thread and all it starts from now on. Call before there is a second thread.
void HoldStopSignals();

// Thread-safety: none.
// Threads:       one (waits for signals), born in the constructor, joined in the destructor.
class StopSignals {
 public:
  // Calls `handler` with the signal's name for each signal, those held back so far included.
  explicit StopSignals(std::function<void(const std::string& name)> handler);
  ~StopSignals();

 private:
  std::thread thread_;
};

}  // namespace slackline::worker
