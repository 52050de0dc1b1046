// Chooses the size of each worker's batches, in proportion to the worker's speed. Steps then take about equally long,
// so workers in modes that wait for each other lose little time. Pure.
//
// Speed is samples per second of computing. Time that a worker waits for others does not count: under bsp it would make
// all workers seem equally fast.
//
// Thread-safety: none.
// Units:         samples.
#pragma once

#include <cstdint>
#include <map>

#include "absl/types/span.h"
#include "common/base/ids.h"

namespace slackline::scheduler {

class BatchSizes {
 public:
  struct Config {
    // Mean batch size over the workers.
    uint32_t batch_size = 1;
    uint32_t least = 1;
    // True to follow the workers' speeds; false to give all batches batch_size samples.
    bool balance = false;
  };

  // Work of one worker, over all its lives.
  struct Computed {
    uint64_t samples = 0;
    double seconds = 0;
  };

  explicit BatchSizes(const Config& config) : config_(config) {}

  // Updates the worker's speed from its totals, which only grow. An increase too small to measure by waits for more.
  void Observe(WorkerId worker, const Computed& totals);
  // Forgets a worker that has gone for good.
  void Forget(WorkerId worker) { speeds_.erase(worker); }
  // Returns the batch size of `worker`, one of the workers `live` that train now. A worker of unknown speed counts as
  // average.
  uint32_t For(WorkerId worker, absl::Span<const WorkerId> live) const;
  // Returns the worker's smoothed speed; 0 if unknown.
  double SamplesPerSecond(WorkerId worker) const;

 private:
  struct Speed {
    Computed seen;
    double samples_per_second = 0;
  };

  const Config config_;
  std::map<WorkerId, Speed> speeds_;
};

}  // namespace slackline::scheduler
