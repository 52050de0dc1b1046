// Factor of the loss in half precision, without which small numbers would be lost. Method: Micikevicius et al. 2018
// (mixed precision training), and GradScaler of PyTorch with its defaults.
#pragma once

#include <algorithm>
#include <cstdint>

namespace slackline::worker {

// Thread-safety: none.
class LossScaler {
 public:
  struct Config {
    // If false, the factor stays 1.
    bool on = false;
    double initial = 65536;
    // Number of good steps in a row after which the factor doubles.
    uint32_t growth_steps = 2000;
  };

  explicit LossScaler(const Config& config) : config_(config), scale_(config.on ? config.initial : 1) {}

  bool on() const { return config_.on; }
  float scale() const { return static_cast<float>(scale_); }
  // Records that the gradient of a step was finite.
  void Good() {
    if (!on() || ++good_ < config_.growth_steps) return;
    good_ = 0;
    scale_ = std::min(2 * scale_, kMost);
  }
  // Records that the gradient of a step was not finite, and halves the factor. Returns false if the factor is already
  // 1, so that it is not to blame.
  bool Bad() {
    if (scale_ <= 1) return false;
    good_ = 0;
    scale_ = std::max(scale_ / 2, 1.0);
    return true;
  }

 private:
  // Largest factor, so that a float can hold the scaled loss.
  static constexpr double kMost = 1 << 30;

  const Config config_;
  double scale_;
  uint32_t good_ = 0;
};

}  // namespace slackline::worker
