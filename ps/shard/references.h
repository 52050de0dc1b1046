// Past versions of a shard's weights, from which gradients on their way were computed. Delay compensation needs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "absl/types/span.h"
#include "common/base/ids.h"
#include "ps/consistency/events.h"
#include "ps/shard/slice.h"

namespace slackline::ps {

// Keeps a version as long as a live worker can still push from it, or a push from it waits for its step. Beyond
// `versions_max` versions, the oldest is released first.
//
// Thread-safety: none; the shard's sequencer calls it.
// Invariant:     at most versions_max views are held.
class References {
 private:
  using Key = std::pair<Lineage, uint64_t>;

 public:
  // Marks a version as needed, for as long as the Use exists. The version may still be released in favour of newer
  // ones.
  class Use {
   public:
    Use() = default;
    Use(References* references, const Version& version);
    Use(Use&& other) noexcept : references_(std::exchange(other.references_, nullptr)), key_(std::move(other.key_)) {}
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

  // Keeps nothing if `versions_max` is 0. Must outlive all uses.
  explicit References(size_t versions_max) : versions_max_(versions_max) {}
  References(const References&) = delete;
  References& operator=(const References&) = delete;

  // Records that the worker was sent this version. The worker may push from the last `window` versions that it was
  // sent.
  void Sent(const Sender& worker, uint32_t window, const Version& version, const SliceView& view);
  // Forgets the versions sent to these workers, which are no members any more: only members can push.
  void Forget(absl::Span<const Sender> workers);

  // Returns the weights of the version; null if they are not kept.
  const SliceView* Find(const Version& version) const;
  // Number of versions that are kept.
  size_t versions() const { return versions_; }

 private:
  struct Needed {
    size_t uses = 0;
    // Weights of the version; without chunks if the version was released or never sent.
    SliceView view;
  };

  static Key KeyOf(const Version& version) { return {version.lineage, version.number}; }
  void Keep(Needed& needed, const SliceView& view);
  void LetGo(Needed& needed);

  const size_t versions_max_;
  size_t versions_ = 0;
  std::map<Key, Needed> needed_;
  std::map<Sender, std::deque<Use>> sent_;  // oldest first; declared after needed_, in which its uses count
};

}  // namespace slackline::ps
