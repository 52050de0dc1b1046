// How large each worker's batches are: in proportion to its speed, so that steps take about equally long and workers
// that wait for each other do not. Pure.
//
// Speed is samples a second of computing. What a worker waits for others does not count, or under bsp all would seem
// equally fast.
//
// Thread-safety: none.
// Units:         samples.
#pragma once

#include <cstdint>
#include <map>

#include "absl/types/span.h"
#include "common/ids.h"

namespace slackline::scheduler {

class BatchSizes {
 public:
  struct Config {
    // The mean over the workers.
    uint32_t batch_size = 1;
    uint32_t least = 1;
    // Else all batches are of batch_size.
    bool balance = false;
  };

  // Of one worker, over all its lives.
  struct Computed {
    uint64_t samples = 0;
    double seconds = 0;
  };

  explicit BatchSizes(const Config& config) : config_(config) {}

  // Totals that only grow; what is too little to measure by waits for more.
  void Observe(WorkerId worker, const Computed& totals);
  // The worker has gone for good.
  void Forget(WorkerId worker) { speeds_.erase(worker); }
  // For a worker among those that train now, itself included. Who is not known yet counts as average.
  uint32_t For(WorkerId worker, absl::Span<const WorkerId> live) const;
  // Smoothed; 0 when unknown.
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
