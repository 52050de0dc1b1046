// The factor of the loss in half precision, whose small numbers would else be lost: as Micikevicius et al. 2018 (mixed
// precision training) have it, and PyTorch's GradScaler with its defaults. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace slackline::worker {

// Thread-safety: none.
class LossScaler {
 public:
  struct Config {
    // Else the factor is 1, and stays so.
    bool on = false;
    double initial = 65536;
    // Doubles after so many good steps in a row.
    uint32_t growth_steps = 2000;
  };

  explicit LossScaler(const Config& config) : config_(config), scale_(config.on ? config.initial : 1) {}

  bool on() const { return config_.on; }
  float scale() const { return static_cast<float>(scale_); }
  // The gradient of a step was finite.
  void Good() {
    if (!on() || ++good_ < config_.growth_steps) return;
    good_ = 0;
    scale_ = std::min(2 * scale_, kMost);
  }
  // It was not. False where the factor is not to blame, since it is 1 already.
  bool Bad() {
    if (scale_ <= 1) return false;
    good_ = 0;
    scale_ = std::max(scale_ / 2, 1.0);
    return true;
  }

 private:
  // What a float of the scaled loss can be.
  static constexpr double kMost = 1 << 30;

  const Config config_;
  double scale_;
  uint32_t good_ = 0;
};

}  // namespace slackline::worker
