#include "simulator/poison.h"

#include <algorithm>
#include <cmath>

#include "absl/types/span.h"

namespace slackline::simulator {
namespace {

constexpr float kPoisonScale = 10;

}  // namespace

std::shared_ptr<const Gradient> Poisoned(const Gradient& gradient, job::Poison::Kind kind, const Learned& learned,
                                         RandomStream& random) {
  auto wrong = std::make_shared<Gradient>();
  wrong->result = gradient.result;
  wrong->norm = gradient.norm;
  wrong->local_state = gradient.local_state;
  wrong->push = AllocateAlignedFloats(learned.elements);
  std::copy_n(gradient.push.get(), learned.elements, wrong->push.get());
  const absl::Span<float> trained(wrong->push.get(), learned.trained_elements);
  switch (kind) {
    case job::Poison::NONE:
      break;
    case job::Poison::FLIP:
      for (float& value : trained) value = -value;
      break;
    case job::Poison::SCALE:
      for (float& value : trained) value *= kPoisonScale;
      wrong->norm *= kPoisonScale;
      break;
    case job::Poison::NOISE: {
      const double deviation = gradient.norm / std::sqrt(static_cast<double>(trained.size()));
      for (float& value : trained) value = static_cast<float>(deviation * random.Normal());
      break;
    }
  }
  return wrong;
}

}  // namespace slackline::simulator
