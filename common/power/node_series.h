// Metrics series of the node that a process runs on.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "common/metrics/metrics.h"
#include "common/power/energy_tally.h"

namespace slackline::power {

// Thread-safety: none; one thread publishes.
// Ownership:     borrows `metrics`.
class NodeSeries {
 public:
  NodeSeries(Metrics& metrics, std::string node) : metrics_(metrics), node_(std::move(node)) {}

  // Sets the series of the devices. A device's series are created when it is first read.
  void Publish(absl::Span<const DeviceTotals> devices);

 private:
  Metrics& metrics_;
  const std::string node_;
};

}  // namespace slackline::power
