// Whether training leaves the band that the job allows: the mean loss over a window of samples, and gradients. Pure.
//
// Thread-safety: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace slackline::scheduler {

class DivergenceGuard {
 public:
  // Of each limit 0 means that there is none.
  struct Config {
    double loss_max = 0;
    // Times the smallest mean so far.
    double loss_factor = 0;
    double gradient_norm_max = 0;
    // What a mean is made of, at least.
    uint64_t window_samples = 1;
  };

  // What was trained since the last Observe(), by all workers.
  struct Seen {
    double loss_sum = 0;  // over the samples
    uint64_t samples = 0;
    double gradient_norm_max = 0;
  };

  explicit DivergenceGuard(const Config& config) : config_(config) {}

  // Says what is wrong when the band is left; nothing while it stays so, until it was kept again.
  std::optional<std::string> Observe(const Seen& seen);

 private:
  // Empty while the band is kept.
  std::string LossMistake(double mean) const;

  const Config config_;
  double loss_sum_ = 0;
  uint64_t samples_ = 0;
  std::optional<double> best_mean_;
  bool loss_outside_ = false;
  bool norm_outside_ = false;
};

}  // namespace slackline::scheduler
