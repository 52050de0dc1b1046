// Detects that training leaves the band that the job allows: for the mean loss over a window of samples, and for
// gradients. Pure.
//
// Thread-safety: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace slackline::scheduler {

class DivergenceGuard {
 public:
  // Limits of the band. A limit of 0 means that there is none.
  struct Config {
    double loss_max = 0;
    // Largest mean, as a multiple of the smallest mean so far.
    double loss_factor = 0;
    double gradient_norm_max = 0;
    // Smallest number of samples in a mean.
    uint64_t window_samples = 1;
  };

  // Figures of what all workers have trained since the last Observe().
  struct Seen {
    uint64_t samples = 0;
    uint64_t samples_with_loss = 0;
    double loss_sum = 0;  // sum over samples_with_loss
    double gradient_norm_max = 0;
  };

  explicit DivergenceGuard(const Config& config) : config_(config) {}

  // Returns what is wrong when training leaves the band. Returns nullopt while training stays inside, and while it
  // stays outside until it has been inside again.
  std::optional<std::string> Observe(const Seen& seen);

 private:
  // Returns what is wrong with the mean loss; empty if it is within the band.
  std::string LossMistake(double mean) const;

  const Config config_;
  double loss_sum_ = 0;
  uint64_t samples_ = 0;
  std::optional<double> best_mean_;
  bool loss_outside_ = false;
  bool norm_outside_ = false;
};

}  // namespace slackline::scheduler
