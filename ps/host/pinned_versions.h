// PinnedVersions: the versions of a shard's weights that streams still read, and which stream reads which.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "ps/consistency/engine.h"
#include "ps/host/peer.h"
#include "ps/shard/slice.h"

namespace slackline::ps {

// Thread-safety: none; the sequencer calls it. Views may be let go on any thread.
// Ownership:     borrows peers until Forget().
// Invariants:
//   - At most `versions_max` versions of what workers pull are kept, and as many of each Aside.
//   - Readers hold at most all but one of them, if `versions_max` is above 1. So workers have a version to train on,
//     however slowly readers read.
class PinnedVersions {
 public:
  // `on_unpinned`: called when a version is no longer being sent; on any thread.
  PinnedVersions(size_t versions_max, std::function<void()> on_unpinned)
      : versions_max_(versions_max), on_unpinned_(std::move(on_unpinned)) {}

  using MakeView = absl::FunctionRef<SliceView()>;
  enum class Kind { kWorker, kReader };
  // Returns the current version for a peer of `kind` to send from. If too many other versions are being sent from,
  // returns the newest of them if it `will_do`, else null.
  std::shared_ptr<const PinnedView> Pin(Kind kind, const PastState& current, MakeView view,
                                        absl::FunctionRef<bool(const PastState&)> will_do);
  // Weights that only readers pull: the average, and the weights themselves where workers pull predicted ones.
  enum class Aside { kAverage, kUnpredicted };
  // Returns such weights at the current version; null if too many of their versions are being sent from.
  std::shared_ptr<const PinnedView> PinAside(Aside which, const Version& current, MakeView view);
  // Returns a reference to what Pin() or PinAside() has just returned. The peer keeps it as long as it reads for this
  // pull.
  std::shared_ptr<const PinnedView> Hold(const std::shared_ptr<const PinnedView>& view, Kind kind, Peer* peer,
                                         PullId pull, absl::Time now);
  // Forgets a peer whose stream ends. What it holds is freed when its call ends.
  void Forget(const Peer* peer);

  // Number of versions that streams still read, without those aside.
  size_t versions() const;
  // A stream that still sends from a version, or was lent it.
  struct Holder {
    Kind kind = Kind::kWorker;
    Peer* peer = nullptr;  // null: its stream has ended
    PullId pull;
    absl::Time since;
    std::weak_ptr<const void> hold;
  };
  struct Late {
    Version version;
    std::vector<Holder> holders;
  };
  // Returns who has held the oldest version since `since` or longer. `for_readers`: the readers that hold the oldest
  // version that readers hold, of those that workers pull or of one of those aside, if there is one.
  Late HoldersSince(absl::Time since, bool for_readers) const;

 private:
  struct Pinned {
    std::weak_ptr<const PinnedView> view;
    PastState state;
    std::vector<Holder> holders;

    bool ReadByReaders() const;
    Late HeldSince(absl::Time since, bool readers_only) const;
  };

  const size_t versions_max_;
  const std::function<void()> on_unpinned_;
  std::vector<Pinned> pinned_;                // oldest first
  std::array<std::vector<Pinned>, 2> aside_;  // for each Aside; oldest first
};

}  // namespace slackline::ps
