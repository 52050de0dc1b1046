// The bound of ssp, moved between two limits by what it costs and what it brings. Pure.
//
// Workers that are held at the bound lose time; workers that run ahead compute stale gradients. So the bound begins at
// its smallest, is loosened where workers wait and somebody was at it, and taken back where that did not help: behind a
// worker that is always slower, the others wait at any bound. It is tightened where hardly anybody waits and gradients
// are staler than they must be.
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
    // Else it stays at `most`, but for Tighten().
    bool automatic = false;
  };

  // What was seen since the last Observe(), of all workers.
  struct Interval {
    double compute_seconds = 0;
    double wait_seconds = 0;
    double staleness_mean = 0;
    // How far ahead of the slowest one was.
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
  // Of a job that goes on.
  void Restore(uint64_t bound) { bound_ = std::clamp(bound, config_.least, std::max(config_.least, config_.most)); }
  // Decides once for the interval.
  std::optional<Change> Observe(const Interval& interval);
  // To its smallest, for good.
  std::optional<Change> Tighten(const std::string& reason);

 private:
  // How things were before the bound was loosened.
  struct Before {
    uint64_t bound = 0;
    double wait_fraction = 0;
  };

  std::optional<Change> MoveTo(uint64_t bound, std::string reason);

  const Config config_;
  uint64_t bound_;
  bool tightened_ = false;
  std::optional<Before> loosened_;
  // Intervals until it may be loosened again.
  uint32_t hold_ = 0;
};

}  // namespace slackline::scheduler
