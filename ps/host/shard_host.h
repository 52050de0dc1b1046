// Logical shard, as the service runs it: the consistency engine decides, the numbers follow, and callers are told.
//
// Frames come in and go out through Peer. A shard has no gRPC and no thread of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/frame.h"
#include "common/time/clock.h"
#include "parameter_server.pb.h"
#include "ps/base/service_metrics.h"
#include "ps/consistency/engine.h"
#include "ps/host/followed_workers.h"
#include "ps/host/part_positions.h"
#include "ps/host/peer.h"
#include "ps/host/pinned_versions.h"
#include "ps/host/repeats.h"
#include "ps/host/shard_journal.h"
#include "ps/host/staging.h"
#include "ps/shard/references.h"
#include "ps/shard/shard_state.h"
#include "ps/store/checkpoint_part.h"
#include "ps/store/snapshot.h"

namespace slackline::ps {

struct ShardConfig {
  ShardId shard;
  ShardExtent extent;
  OptimizerConfig optimizer;
  // Runs of groups, as ShardState takes them.
  std::vector<GroupRun> groups;
  EngineConfig engine;
  // True if the shard's weights lie in memory that workers of this host may map.
  bool shared_memory = false;
  // Number of elements in a copy-on-write chunk and in a pulled chunk.
  uint64_t chunk_elements = 262144;
  uint32_t chunk_bytes_max = 4 << 20;
  uint32_t pinned_versions_max = 2;
  // Largest number of versions kept for delay compensation; 0 without it.
  uint32_t references_max = 0;
  // True if no weights are served before FirstSnapshotTried(), so that no push is ever answered that a restart could
  // not place. Also true for a shard with a journal: its first snapshot is what a backup begins with.
  bool snapshots = false;
  // Callback when a version is no longer being sent; on any thread. Retry() may then help.
  std::function<void()> on_unpinned;
  // Callback when the shard has received its initial weights. May be null.
  std::function<void()> on_seeded = nullptr;
};

// Runs one shard: stages pushes, carries out the engine's actions, and serves pulls.
//
// Thread-safety: none; the sequencer calls it.
// Ownership:     borrows the budget, the metrics, the time, and the peers between Hello() and Disconnected().
// Invariants:
//   - No input from a caller stops the process.
//   - A refused request changes nothing, and half a push never shows.
//   - At most pinned_versions_max superseded versions are kept for peers that pull. Readers leave one of them to
//     workers, if there are several. No peer can keep one for long while others wait. Pushes never wait for readers.
//   - At most references_max versions are kept for delay compensation.
class ShardHost {
 public:
  ShardHost(ShardConfig config, StagingBudget& budget, ServiceMetrics& metrics, const TimeSource& time);

  // Opens a worker's stream, and returns the shard's state for its Welcome.
  //   kFailedPrecondition  the worker is not a member
  absl::StatusOr<wire::ShardState> Hello(const Caller& caller, const HelloEvent& hello);
  // Returns the shard's state for the Welcome of a reader.
  wire::ShardState Greet() const;
  // Handles the end of a stream: a push that it had begun is dropped, a push that it had completed stays.
  void Disconnected(const Caller& caller);

  void Push(const Caller& caller, const wire::PushChunk& chunk, rpc::Payload payload);
  // `averaged`: a reader pulls the average of the weights. Requires: the optimizer keeps an average.
  void Pull(const Caller& caller, const PullEvent& pull, const std::optional<Version>& known, bool averaged = false);

  // Same as Engine::SetMembers().
  absl::Status SetMembers(const MemberSet& set);
  void SetStalenessBound(uint64_t bound);
  // Returns the whole shard as it is now; costs no copy.
  // Requires: seeded().
  ShardSnapshot Snapshot() const;
  // Function that fills the numbers of a shard and returns the state of its engine.
  using ReadSnapshot = std::function<absl::StatusOr<EngineState>(ShardState&)>;
  // Continues from a snapshot or a checkpoint, under `lineage` or a later one. Requires: the host is as its constructor
  // made it. After a failure the host must not be used.
  absl::Status Restore(const ReadSnapshot& read, Lineage lineage);
  // Reports to `journal` all that happens from now on; answers wait for it. Null ends that. Not in modes that answer
  // a push before its step. Ownership: borrowed.
  void SetJournal(ShardJournal* journal) { journal_ = journal; }
  // Returns the members with their clocks, for a journal that begins. A copy must also know the members that have not
  // come yet; otherwise they would begin at the clock that the others have by then.
  std::vector<std::pair<Sender, Clock64>> MemberClocks() const;

  // --- Copy of a shard that lives elsewhere: these calls replace all worker calls, until Promote() ---

  // Starts the copy from a snapshot. Requires: the host is as its constructor made it. After a failure the host must
  // not be used.
  absl::Status Adopt(const ReadSnapshot& read);
  // Takes the step after the copy's version.
  //   kInternal  the step is to another version
  // Requires: Adopt(); the step has a push, checked, of the whole shard.
  absl::Status Follow(const JournalStep& step);
  // Workers of the copy. The caller passes on what the shard tells of them; Follow() does so for the answers of a step.
  FollowedWorkers& followed() { return followed_; }
  // Returns OK if the copy is at this version and its weights have this checksum.
  absl::Status Compare(const Version& version, uint64_t checksum) const;
  // Turns the copy into the shard itself, under `lineage` or a later one.
  void Promote(Lineage lineage);

  // Hands the shard over to `take` once, as it is at `version`. With nullopt, hands it over as it is now, before
  // CutAt() returns. Replaces an earlier request. Requires: seeded(), and the shard is not past `version`.
  void CutAt(std::optional<uint64_t> version, std::function<void(ShardCut)> take);
  bool awaits_cut() const { return take_cut_ != nullptr; }
  // Ends the wait for the first snapshot: it exists, or it was tried and cannot be had now.
  void FirstSnapshotTried();
  // Tells the worker that an answer to it waits for the journal.
  void Notify(const Sender& sender, absl::Duration waited, const std::string& awaited);
  // Handles the passing of time: retries pulls, sends notices to workers that wait, ends late readers.
  void Tick();
  // Serves pulls that waited for memory or for initial weights.
  void Retry();

  const ShardConfig& config() const { return config_; }
  const Engine& engine() const { return engine_; }
  const PartPositions& part_positions() const { return part_positions_; }
  const Version& version() const { return version_; }
  // Returns a checksum of the weights as they are now. Requires: seeded().
  uint64_t Checksum() const;
  // Names of the arrays: ShardState::arrays().
  const std::vector<std::string>& arrays() const { return state_.arrays(); }
  bool seeded() const { return state_.seeded(); }
  // Segment in which the weights lie; null if they lie on the heap.
  const std::shared_ptr<shm::Segment>& segment() const { return segment_; }
  struct Load {
    size_t waiting_pulls = 0;
    size_t pinned_versions = 0;     // versions that streams still read
    size_t reference_versions = 0;  // versions kept for delay compensation
    double steps_ahead = 0;         // of the weights that workers pull, with weight prediction
  };
  Load load() const {
    return {engine_.waiting_pulls() + blocked_.size(), pinned_.versions(), references_.versions(),
            state_.steps_ahead()};
  }

 private:
  // Treatment of the chunks of the sub-push that a stream is sending.
  enum class Fate {
    kStage,
    kAnswer,   // ignore the bytes: only the commit matters
    kSwallow,  // refused, and said so once: ignore the other chunks
  };
  struct Arriving {
    Sequence sequence;
    bool seed = false;
    Fate fate = Fate::kStage;
    StagedPush staged;
    bool shared_memory = false;  // the bytes come in the worker's segment, ...
    bool copied = false;         // ... and are copied out before anything reads them
    // True if the push was refused only for now. Its chunks that are still on their way do not count as wasted.
    bool to_be_repeated = false;
  };
  struct Held {
    StagedPush staged;
    double gradient_norm = 0;
    std::vector<double> learning_rates;  // empty: the job's
    bool shared_memory = false;          // the bytes are in the worker's segment
    References::Use base;
  };
  // Pull that was received but not yet handed to the peer.
  struct Asked {
    Peer* peer = nullptr;
    // Worker that pulls; nullopt for a reader.
    std::optional<Sender> sender;
    PullId id;
    Clock64 clock;
    std::optional<Version> known;
    uint32_t queued_max = 1;
    bool shared_memory = false;
    codec::Encoding encoding = codec::Encoding::kFp32;
    absl::Time since = {};
    bool averaged = false;
  };
  struct Blocked {
    Asked asked;
    absl::Time since;
    absl::Time notice_at;
  };
  // Pushes (from, to] that a restore has lost.
  struct Gap {
    Sequence from;
    Sequence to;
  };
  struct Member {
    Peer* peer = nullptr;
    std::deque<Asked> asked;  // oldest first, at most the window
  };

  void Begin(const Caller& caller, const wire::PushChunk& chunk);
  absl::Status Stage(const wire::PushChunk& chunk, rpc::Payload payload, Arriving& arriving) const;
  // Returns true if pushes in shared memory are copied on arrival, because their worker can write there at any time. A
  // push that is only applied, and only once, may be read where it lies, because any value will do for that.
  bool CopiesPushes() const;
  // Decides how to treat the sub-push that this chunk begins. An error is for the caller.
  absl::StatusOr<Arriving> Admit(const Caller& caller, const wire::PushChunk& chunk);
  absl::StatusOr<Arriving> AdmitSeed(const Caller& caller, const wire::PushChunk& chunk);
  void Commit(const Caller& caller, const wire::PushChunk& chunk, Arriving arriving);
  void CommitSeed(const Caller& caller, Arriving arriving);

  void Execute(const Actions& actions);
  void Execute(const ApplyAction& apply);
  void Execute(const DropAction& drop);
  void Execute(const AnswerAction& answer);
  void Execute(const ServeAction& serve);
  void Execute(const RefuseAction& refuse);
  void Execute(const WaitingAction& waiting);
  void Execute(const LostAction& lost);
  // Sends the answer to the worker, once the journal lets it.
  void Tell(const Sender& sender, const Answer& answer);
  // Returns the weights that a push was computed from, if they are kept and are not the current ones; else an empty
  // view.
  SliceView Reference(const ApplyAction::Part& part);
  void TakeCut();
  // Copies a held push out of its worker's segment. A push that is answered before it is applied must not lie where its
  // worker writes the next gradient.
  void Keep(const PushRef& push);

  // Hands the weights to the peer, or keeps the pull until that is possible.
  void Serve(const Asked& asked);
  bool TryServe(const Asked& asked);
  // Returns true if a superseded version may answer the pull.
  bool WillDo(const PastState& state, const Asked& asked) const;
  // Ends the streams that hold the oldest version, if pulls have waited long for memory.
  void EndLateReaders(absl::Time now);
  void Forget(const Peer* peer);
  // Makes room for one more pull of this caller among those that wait for memory.
  void ForgetOldest(const Caller& caller);
  void NotifyBlocked(Blocked& blocked, absl::Time now);
  Peer* Find(const Sender& sender) const;
  void Refuse(Peer& peer, const wire::PushChunk& chunk, const absl::Status& status);

  const ShardConfig config_;
  StagingBudget& budget_;
  ServiceMetrics& metrics_;
  const TimeSource& time_;
  Engine engine_;
  const std::shared_ptr<shm::Segment> segment_;
  ShardState state_;
  Version version_;                   // version of state_; the engine's may be ahead while actions are carried out
  std::set<Sender> set_;              // members
  std::map<Sender, Member> members_;  // members with an open stream
  References references_;             // declared before held_, whose uses it counts
  std::map<const Peer*, Arriving> arriving_;
  Repeats repeats_;
  std::map<PushRef, Held> held_;  // complete and checked pushes
  PartPositions part_positions_;
  std::optional<WorkerId> pushing_;  // worker whose push led to the engine's actions
  std::vector<Blocked> blocked_;
  PinnedVersions pinned_;
  std::map<Sender, Gap> lost_;  // gap that each member must be told of
  ShardJournal* journal_ = nullptr;
  FollowedWorkers followed_;                // of a copy
  bool awaits_snapshot_;                    // no weights are served before the first snapshot
  std::function<void(ShardCut)> take_cut_;  // null if no cut is wanted
  uint64_t cut_at_ = 0;
};

}  // namespace slackline::ps
