#include "ps/host/pinned_versions.h"

#include <algorithm>

#include "common/base/check.h"

namespace slackline::ps {

bool PinnedVersions::Pinned::ReadByReaders() const {
  return std::any_of(holders.begin(), holders.end(),
                     [](const Holder& holder) { return holder.kind == Kind::kReader && !holder.hold.expired(); });
}

std::shared_ptr<const PinnedView> PinnedVersions::Pin(Kind kind, const PastState& current, MakeView view,
                                                      absl::FunctionRef<bool(const PastState&)> will_do) {
  std::erase_if(pinned_, [](const Pinned& pinned) { return pinned.view.expired(); });
  // Readers may let go of one meanwhile, but the newest is the current one or will do only if it is kept.
  std::shared_ptr<const PinnedView> newest;
  if (!pinned_.empty()) newest = pinned_.back().view.lock();
  const bool is_current = newest != nullptr && newest->version() == current.version;
  if (kind == Kind::kReader && !(is_current && pinned_.back().ReadByReaders())) {
    const size_t others = static_cast<size_t>(
        std::count_if(pinned_.begin(), pinned_.end(), [](const Pinned& pinned) { return pinned.ReadByReaders(); }));
    if (others >= std::max<size_t>(1, versions_max_ - 1)) return nullptr;
  }
  // The next push supersedes this version, too, so it takes a place.
  if (!is_current && pinned_.size() < versions_max_) {
    newest = std::make_shared<const PinnedView>(current.version, view(), on_unpinned_);
    pinned_.push_back({newest, current, {}});
    return newest;
  }
  // Clocks only rise: if the newest will not do, no older one will.
  if (newest == nullptr || is_current || will_do(pinned_.back().state)) return newest;
  return nullptr;
}

std::shared_ptr<const PinnedView> PinnedVersions::PinAside(Aside which, const Version& current, MakeView view) {
  std::vector<std::weak_ptr<const PinnedView>>& aside = aside_[static_cast<size_t>(which)];
  std::erase_if(aside, [](const auto& pinned) { return pinned.expired(); });
  std::shared_ptr<const PinnedView> newest;
  if (!aside.empty()) newest = aside.back().lock();
  if (newest != nullptr && newest->version() == current) return newest;
  if (aside.size() >= versions_max_) return nullptr;
  newest = std::make_shared<const PinnedView>(current, view(), on_unpinned_);
  aside.push_back(newest);
  return newest;
}

std::shared_ptr<const PinnedView> PinnedVersions::Hold(const std::shared_ptr<const PinnedView>& view, Kind kind,
                                                       Peer* peer, PullId pull, absl::Time now) {
  SLACKLINE_CHECK(!pinned_.empty() && pinned_.back().view.lock() == view);
  std::vector<Holder>& holders = pinned_.back().holders;
  // Each reply has a hold of its own, which shows which peers still read.
  auto hold = std::make_shared<const std::shared_ptr<const PinnedView>>(view);
  std::erase_if(holders, [](const Holder& holder) { return holder.hold.expired(); });
  holders.push_back({kind, peer, pull, now, hold});
  return std::shared_ptr<const PinnedView>(hold, view.get());
}

void PinnedVersions::Forget(const Peer* peer) {
  for (Pinned& pinned : pinned_) {
    for (Holder& holder : pinned.holders) {
      if (holder.peer == peer) holder.peer = nullptr;
    }
  }
}

size_t PinnedVersions::versions() const {
  return static_cast<size_t>(
      std::count_if(pinned_.begin(), pinned_.end(), [](const Pinned& pinned) { return !pinned.view.expired(); }));
}

PinnedVersions::Late PinnedVersions::HoldersSince(absl::Time since, bool for_readers) const {
  auto oldest = pinned_.end();
  if (for_readers) {
    oldest = std::find_if(pinned_.begin(), pinned_.end(), [](const Pinned& pinned) { return pinned.ReadByReaders(); });
  }
  const bool readers_only = oldest != pinned_.end();
  if (!readers_only) oldest = pinned_.begin();
  if (oldest == pinned_.end()) return {};
  const auto view = oldest->view.lock();
  if (view == nullptr) return {};
  Late late = {view->version(), {}};
  for (const Holder& holder : oldest->holders) {
    if (holder.peer == nullptr || holder.hold.expired() || holder.since > since) continue;
    if (!readers_only || holder.kind == Kind::kReader) late.holders.push_back(holder);
  }
  return late;
}

}  // namespace slackline::ps
