// The terminal output of a simulation.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "simulator/cluster.h"

namespace slackline::simulator {

// Thread-safety: none.
class View {
 public:
  explicit View(bool quiet);

  void Event(const std::string& event, absl::Time now);
  // Call it after each event. On a terminal, updates the progress line about twice a second of real time.
  void Progress(SimulatedCluster& cluster);
  void End(SimulatedCluster& cluster, const std::string& folder);

 private:
  void Clear();

  const bool quiet_;
  const bool terminal_;
  const absl::Time began_;
  uint64_t calls_ = 0;
  absl::Time shown_;
  bool line_ = false;  // true while the terminal shows a progress line
};

}  // namespace slackline::simulator
