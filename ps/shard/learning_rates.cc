#include "ps/shard/learning_rates.h"

#include <algorithm>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace slackline::ps {
namespace {

constexpr double kRateMax = std::numeric_limits<float>::max();

}  // namespace

absl::Status CheckLearningRates(absl::Span<const double> rates, size_t groups) {
  if (rates.empty()) return absl::OkStatus();
  if (rates.size() != 1 + groups) {
    return absl::InvalidArgumentError(absl::StrCat("found ", rates.size(), " learning rates; the job has ", groups,
                                                   " groups in optimizer.groups, so that 0 or ", 1 + groups,
                                                   " are allowed: of elements in no group, then of each group"));
  }
  for (const double rate : rates) {
    // False for NaN, too.
    if (rate >= 0 && rate <= kRateMax) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("found the learning rate ", rate, "; allowed is a finite float32 from 0"));
  }
  return absl::OkStatus();
}

std::vector<double> MeanRates(absl::Span<const PushRates> pushes, absl::Span<const double> job,
                              const AggregationConfig& aggregation) {
  SLACKLINE_CHECK(!pushes.empty());
  if (absl::c_all_of(pushes, [](const PushRates& push) { return push.rates.empty(); })) return {};
  const auto of = [&](const PushRates& push) { return push.rates.empty() ? job : push.rates; };
  const absl::Span<const double> first = of(pushes.front());
  std::vector<double> mean(first.begin(), first.end());
  const size_t left_out = aggregation.LeftOut(pushes.size());
  for (size_t i = 0; i < mean.size(); ++i) {
    // Differences are 0 where rates agree, whatever the weights were rounded to.
    if (left_out == 0) {
      for (const PushRates& push : pushes) mean[i] += push.weight * (of(push)[i] - first[i]);
    } else {
      std::vector<double> rates;
      for (const PushRates& push : pushes) rates.push_back(of(push)[i]);
      absl::c_sort(rates);
      const auto middle = absl::MakeSpan(rates).subspan(left_out, rates.size() - 2 * left_out);
      mean[i] = middle.front();
      for (const double rate : middle) mean[i] += (rate - middle.front()) / static_cast<double>(middle.size());
    }
    // Rounding must not take a mean out of the range of rates.
    mean[i] = std::clamp(mean[i], 0.0, kRateMax);
  }
  return mean;
}

}  // namespace slackline::ps
