#include "ps/host/part_positions.h"

#include "absl/strings/str_cat.h"

namespace slackline::ps {
namespace {

bool IsAnswered(Sequence sequence, Clock64 clock) { return sequence.value() <= clock.value(); }

}  // namespace

absl::Status PartPositions::Check(const wire::DataProgress& data) {
  if (data.parts_size() <= kMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("commit names ", data.parts_size(), " parts of a stream; allowed are at most ", kMax));
}

void PartPositions::Pushed(const PushRef& push, const wire::DataProgress& data, Clock64 clock) {
  if (data.parts().empty() && !pushed_.contains(push.sender)) return;
  auto& pushes = pushed_[push.sender];
  // A push that was refused for now comes again.
  while (!pushes.empty() && pushes.back().first >= push.sequence) pushes.pop_back();
  pushes.emplace_back(push.sequence, Positions(data.parts().begin(), data.parts().end()));
  while (pushes.size() > 1 && IsAnswered(pushes[1].first, clock)) pushes.pop_front();
}

PartPositions::Gone PartPositions::Of(absl::Span<const Sender> workers, const Engine& engine) const {
  Gone gone;
  for (const Sender& sender : workers) {
    const auto found = pushed_.find(sender);
    if (found == pushed_.end()) continue;
    const Clock64 clock = engine.clock(sender.worker).value_or(Clock64());
    for (const auto& [sequence, positions] : found->second) {
      if (IsAnswered(sequence, clock)) gone[sender] = positions;
    }
  }
  return gone;
}

void PartPositions::Installed(Epoch epoch, const Gone& gone) {
  for (const auto& [sender, positions] : gone) {
    fenced_[sender] = {epoch, positions};
    pushed_.erase(sender);
  }
  std::erase_if(fenced_, [&](const auto& one) { return one.second.first.value() + kEpochsKept < epoch.value(); });
}

PartPositions::Gone PartPositions::Fenced() const {
  Gone fenced;
  for (const auto& [sender, one] : fenced_) fenced[sender] = one.second;
  return fenced;
}

}  // namespace slackline::ps
