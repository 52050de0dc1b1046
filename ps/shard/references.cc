#include "ps/shard/references.h"

#include "absl/algorithm/container.h"
#include "common/base/check.h"

namespace slackline::ps {

References::Use::Use(References* references, const Version& version) : references_(references), key_(KeyOf(version)) {
  ++references_->needed_[key_].uses;
}

References::Use::~Use() {
  if (references_ == nullptr) return;
  const auto needed = references_->needed_.find(key_);
  SLACKLINE_CHECK(needed != references_->needed_.end());
  if (--needed->second.uses > 0) return;
  references_->LetGo(needed->second);
  references_->needed_.erase(needed);
}

void References::Sent(const Sender& worker, uint32_t window, const Version& version, const SliceView& view) {
  if (versions_max_ == 0) return;
  std::deque<Use>& sent = sent_[worker];
  if (sent.empty() || !sent.back().IsOf(version)) sent.emplace_back(this, version);
  // Before a younger one takes their place among those that are kept.
  while (sent.size() > window) sent.pop_front();
  Keep(needed_.at(KeyOf(version)), view);
}

void References::Keep(Needed& needed, const SliceView& view) {
  if (needed.view.chunks() > 0 || view.chunks() == 0) return;
  needed.view = view;
  ++versions_;
  if (versions_ <= versions_max_) return;
  LetGo(absl::c_find_if(needed_, [](const auto& entry) { return entry.second.view.chunks() > 0; })->second);
}

void References::LetGo(Needed& needed) {
  if (needed.view.chunks() == 0) return;
  needed.view = SliceView();
  --versions_;
}

void References::Forget(absl::Span<const Sender> workers) {
  for (const Sender& worker : workers) sent_.erase(worker);
}

const SliceView* References::Find(const Version& version) const {
  const auto needed = needed_.find(KeyOf(version));
  return needed == needed_.end() || needed->second.view.chunks() == 0 ? nullptr : &needed->second.view;
}

}  // namespace slackline::ps
