#include "worker/trainer/push_mean.h"

#include "common/base/check.h"

namespace slackline::worker {

void PushMean::Add(absl::Span<const float> push, uint64_t samples) {
  const auto weight = static_cast<float>(samples);
  if (samples_ == 0) sum_.assign(push.size(), 0);
  SLACKLINE_CHECK(sum_.size() == push.size());
  for (size_t i = 0; i < push.size(); ++i) sum_[i] += weight * push[i];
  samples_ += samples;
}

void PushMean::Write(absl::Span<float> push) const {
  SLACKLINE_CHECK(samples_ > 0 && sum_.size() == push.size());
  const float scale = 1.0f / static_cast<float>(samples_);
  for (size_t i = 0; i < push.size(); ++i) push[i] = scale * sum_[i];
}

}  // namespace slackline::worker
