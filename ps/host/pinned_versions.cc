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
  std::vector<Pinned>& aside = aside_[static_cast<size_t>(which)];
  std::erase_if(aside, [](const Pinned& pinned) { return pinned.view.expired(); });
  std::shared_ptr<const PinnedView> newest;
  if (!aside.empty()) newest = aside.back().view.lock();
  if (newest != nullptr && newest->version() == current) return newest;
  if (aside.size() >= versions_max_) return nullptr;
  newest = std::make_shared<const PinnedView>(current, view(), on_unpinned_);
  aside.push_back({newest, {current, Clock64()}, {}});
  return newest;
}

std::shared_ptr<const PinnedView> PinnedVersions::Hold(const std::shared_ptr<const PinnedView>& view, Kind kind,
                                                       Peer* peer, PullId pull, absl::Time now) {
  std::vector<Holder>* holders = nullptr;
  for (std::vector<Pinned>* const list : {&pinned_, &aside_[0], &aside_[1]}) {
    if (!list->empty() && list->back().view.lock() == view) holders = &list->back().holders;
  }
  SLACKLINE_CHECK(holders != nullptr);
  // Each reply has a hold of its own, which shows which peers still read.
  auto hold = std::make_shared<const std::shared_ptr<const PinnedView>>(view);
  std::erase_if(*holders, [](const Holder& holder) { return holder.hold.expired(); });
  holders->push_back({kind, peer, pull, now, hold});
  return std::shared_ptr<const PinnedView>(hold, view.get());
}

void PinnedVersions::Forget(const Peer* peer) {
  for (std::vector<Pinned>* const list : {&pinned_, &aside_[0], &aside_[1]}) {
    for (Pinned& pinned : *list) {
      for (Holder& holder : pinned.holders) {
        if (holder.peer == peer) holder.peer = nullptr;
      }
    }
  }
}

size_t PinnedVersions::versions() const {
  return static_cast<size_t>(
      std::count_if(pinned_.begin(), pinned_.end(), [](const Pinned& pinned) { return !pinned.view.expired(); }));
}

PinnedVersions::Late PinnedVersions::Pinned::HeldSince(absl::Time since, bool readers_only) const {
  const auto held = view.lock();
  if (held == nullptr) return {};
  Late late = {held->version(), {}};
  for (const Holder& holder : holders) {
    if (holder.peer == nullptr || holder.hold.expired() || holder.since > since) continue;
    if (!readers_only || holder.kind == Kind::kReader) late.holders.push_back(holder);
  }
  return late;
}

PinnedVersions::Late PinnedVersions::HoldersSince(absl::Time since, bool for_readers) const {
  bool readers_hold = false;
  if (for_readers) {
    for (const std::vector<Pinned>* const list : {&pinned_, &aside_[0], &aside_[1]}) {
      const auto oldest =
          std::find_if(list->begin(), list->end(), [](const Pinned& pinned) { return pinned.ReadByReaders(); });
      if (oldest == list->end()) continue;
      readers_hold = true;
      if (Late late = oldest->HeldSince(since, /*readers_only=*/true); !late.holders.empty()) return late;
    }
  }
  return readers_hold || pinned_.empty() ? Late() : pinned_.front().HeldSince(since, /*readers_only=*/false);
}

}  // namespace slackline::ps
