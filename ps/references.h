// Past versions of a shard's weights that gradients on their way were computed from: what delay compensation needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "absl/types/span.h"
#include "common/ids.h"
#include "ps/consistency/events.h"
#include "ps/slice.h"

namespace slackline::ps {

// Keeps a version as long as a live worker can still push from it, or a push from it waits for its step. Beyond
// `versions_max` the oldest is let go first.
//
// Thread-safety: none; the shard's sequencer calls it.
// Invariant:     at most versions_max views are held.
class References {
 private:
  using Key = std::pair<Lineage, uint64_t>;

 public:
  // Somebody needs the version, for as long as this is there. It does not keep it from being let go for younger ones.
  class Use {
   public:
    Use() = default;
    Use(References* references, const Version& version);
    Use(Use&& other) noexcept : references_(std::exchange(other.references_, nullptr)), key_(other.key_) {}
    Use& operator=(Use&& other) noexcept {
      std::swap(references_, other.references_);
      std::swap(key_, other.key_);
      return *this;
    }
    ~Use();

    bool IsOf(const Version& version) const { return references_ != nullptr && key_ == KeyOf(version); }

   private:
    References* references_ = nullptr;
    Key key_;
  };

  // With 0 nothing is kept. It must outlive all uses.
  explicit References(size_t versions_max) : versions_max_(versions_max) {}
  References(const References&) = delete;
  References& operator=(const References&) = delete;

  // The worker was sent this version. Of those that it was sent it may push from the last `window`.
  void Sent(const Sender& worker, uint32_t window, const Version& version, const SliceView& view);
  // Only these can push from what they were sent.
  void SetMembers(absl::Span<const MemberEntry> members);

  // Null where the version is not kept.
  const SliceView* Find(const Version& version) const;
  // That are kept.
  size_t versions() const { return versions_; }

 private:
  struct Needed {
    size_t uses = 0;
    // No chunks where it was let go, or never sent.
    SliceView view;
  };

  static Key KeyOf(const Version& version) { return {version.lineage, version.number}; }
  void Keep(Needed& needed, const SliceView& view);
  void LetGo(Needed& needed);

  const size_t versions_max_;
  size_t versions_ = 0;
  std::map<Key, Needed> needed_;
  std::map<Sender, std::deque<Use>> sent_;  // oldest first; after what its uses count in
};

}  // namespace slackline::ps
