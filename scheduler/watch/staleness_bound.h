// Moves the bound of ssp between two limits, by its cost and its benefit. Pure.
//
// Workers that are held at the bound lose time; workers that run ahead compute stale gradients. The bound therefore
// begins at its smallest value. It is loosened if workers wait and some worker was at the bound. It is taken back if
// that did not help: behind a worker that is always slower, the others wait at any bound. It is tightened if hardly any
// worker waits and gradients are staler than they must be.
//
// Thread-safety: none.
// Units:         clocks; staleness in versions.
// Invariant:     the bound is within its limits, and only Observe(), Tighten() and Restore() change it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

namespace slackline::scheduler {

class StalenessBound {
 public:
  struct Config {
    uint64_t least = 1;
    uint64_t most = 4;
    // False to keep the bound at `most`, except for Tighten().
    bool automatic = false;
  };

  // Figures of all workers since the last Observe().
  struct Interval {
    double compute_seconds = 0;
    double wait_seconds = 0;
    double staleness_mean = 0;
    // Largest distance of a worker ahead of the slowest one.
    uint64_t slack_max = 0;
    uint64_t live_workers = 0;
  };

  struct Change {
    uint64_t from = 0;
    uint64_t to = 0;
    std::string reason;
  };

  explicit StalenessBound(const Config& config)
      : config_(config), bound_(config.automatic ? config.least : config.most) {}

  uint64_t bound() const { return bound_; }
  // Continues a job with its saved bound, kept within the limits.
  void Restore(uint64_t bound) { bound_ = std::clamp(bound, config_.least, std::max(config_.least, config_.most)); }
  // Decides on the bound, once for each interval.
  std::optional<Change> Observe(const Interval& interval);
  // Sets the bound to its smallest value, for good.
  std::optional<Change> Tighten(const std::string& reason);

 private:
  // Figures from before the bound was loosened.
  struct Before {
    uint64_t bound = 0;
    double wait_fraction = 0;
  };

  std::optional<Change> MoveTo(uint64_t bound, std::string reason);

  const Config config_;
  uint64_t bound_;
  bool tightened_ = false;
  std::optional<Before> loosened_;
  // Number of intervals until the bound may be loosened again.
  uint32_t hold_ = 0;
};

}  // namespace slackline::scheduler
