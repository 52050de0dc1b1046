// One logical shard as the service runs it: the consistency engine decides, the numbers follow, callers are told.
//
// Frames in, frames out through Peer; no gRPC and no thread of its own.
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
#include "common/clock.h"
#include "common/rpc/frame.h"
#include "parameter_server.pb.h"
#include "ps/consistency/engine.h"
#include "ps/references.h"
#include "ps/service/peer.h"
#include "ps/service/service_metrics.h"
#include "ps/service/shard_journal.h"
#include "ps/service/staging.h"
#include "ps/shard_state.h"
#include "ps/store/checkpoint_part.h"
#include "ps/store/snapshot.h"

namespace slackline::ps {

struct ShardConfig {
  ShardId shard;
  ShardExtent extent;
  OptimizerConfig optimizer;
  // As ShardState has them.
  std::vector<GroupRun> groups;
  EngineConfig engine;
  // The shard's weights lie in memory that workers of this host may map.
  bool shared_memory = false;
  // Copy-on-write unit, and the size of a pulled chunk.
  uint64_t chunk_elements = 262144;
  uint32_t chunk_bytes_max = 4 << 20;
  uint32_t pinned_versions_max = 2;
  // For delay compensation; 0 without.
  uint32_t references_max = 0;
  // Nobody gets weights before FirstSnapshotTried(), so that no push is ever answered that a restart could not place.
  // Also of a shard that has a journal: its first snapshot is what a backup begins with.
  bool snapshots = false;
  // As in Engine::PlantForTest().
  Engine::Bugs bugs = {};
  // Runs when a version is no longer being sent, on any thread: Retry() may help.
  std::function<void()> on_unpinned;
  // Runs when the shard has got its initial weights. May be null.
  std::function<void()> on_seeded = nullptr;
};

// Thread-safety: none; the sequencer calls it.
// Ownership:     borrows the budget, the metrics, the time, and the peers between Hello() and Disconnected().
// Invariants:    nothing a caller sends stops the process; what is refused changes nothing; half a push never shows;
//                at most pinned_versions_max superseded versions are kept for readers, and no reader can keep one for
//                long while others wait; pushes never wait for readers; at most references_max versions are kept for
//                delay compensation.
class ShardHost {
 public:
  ShardHost(ShardConfig config, StagingBudget& budget, ServiceMetrics& metrics, const TimeSource& time);

  // A worker opens its stream; the state goes into its Welcome.
  //   kFailedPrecondition  not a member
  absl::StatusOr<wire::ShardState> Hello(const Caller& caller, const HelloEvent& hello);
  // The same for a reader.
  wire::ShardState Greet() const;
  // The stream has ended: what it had begun is dropped, what it had completed stays.
  void Disconnected(const Caller& caller);

  void Push(const Caller& caller, const wire::PushChunk& chunk, rpc::Payload payload);
  // `averaged`: of the weights' average, for a reader. Requires: the optimizer keeps it.
  void Pull(const Caller& caller, const PullEvent& pull, const std::optional<Version>& known, bool averaged = false);

  //   kFailedPrecondition  an older epoch than the installed one
  absl::Status SetMembers(Epoch epoch, absl::Span<const MemberEntry> members);
  void SetStalenessBound(uint64_t bound);
  // All of it as it is now; costs no copy.
  // Requires: seeded().
  ShardSnapshot Snapshot() const;
  // Fills the numbers of a shard and returns the state of its engine.
  using ReadSnapshot = std::function<absl::StatusOr<EngineState>(ShardState&)>;
  // Goes on from a snapshot or a checkpoint, under `lineage` or a later one. For a host that is still as it was made;
  // after a failure it is not to be used.
  absl::Status Restore(const ReadSnapshot& read, Lineage lineage);
  // From now on all that happens is told to the journal, and answers wait for it. Before anybody has said Hello; not in
  // softsync, which answers before it takes the step. Ownership: borrowed.
  void SetJournal(ShardJournal* journal) { journal_ = journal; }
  // The set of members with their clocks, for a journal that begins: a copy must know also those who have not come yet,
  // or it would let them begin where others are by then.
  std::vector<std::pair<Sender, Clock64>> MemberClocks() const;

  // --- The copy of a shard that lives elsewhere: instead of all that workers do, and until Promote() ---

  // Begins as a snapshot says. For a host that is still as it was made; after a failure it is not to be used.
  absl::Status Adopt(const ReadSnapshot& read);
  //   kInternal  it is not the next step
  // Requires: Adopt(); a push, checked, of the whole shard.
  absl::Status Follow(const RecordedStep& step);
  void Follow(const Sender& sender, const Answer& answer);
  void Follow(const Sender& sender, Clock64 clock);
  // It is no member any more.
  void FollowLeaver(const Sender& sender);
  // Whether the copy is at this version with these weights.
  absl::Status Compare(const Version& version, uint64_t checksum) const;
  // The shard lives here from now on, under `lineage` or a later one.
  void Promote(Lineage lineage);

  // Hands over the shard as it is at this version, once; nullopt: as it is now, before this returns. Replaces an
  // earlier wish. Requires: seeded(), and no later version than this one.
  void CutAt(std::optional<uint64_t> version, std::function<void(ShardCut)> take);
  bool awaits_cut() const { return take_cut_ != nullptr; }
  // There is a snapshot, or it was tried and cannot be had now.
  void FirstSnapshotTried();
  // An answer to this worker waits for the journal.
  void Notify(const Sender& sender, absl::Duration waited, const std::string& awaited);
  // Time has passed: notices for those who wait.
  void Tick();
  // Serves pulls that waited for memory or for initial weights.
  void Retry();

  const ShardConfig& config() const { return config_; }
  const Engine& engine() const { return engine_; }
  const Version& version() const { return version_; }
  // Of the weights as they are now. Requires: seeded().
  uint64_t Checksum() const;
  const Optimizer& optimizer() const { return state_.optimizer(); }
  // As ShardState::arrays().
  const std::vector<std::string>& arrays() const { return state_.arrays(); }
  bool seeded() const { return state_.seeded(); }
  // Where the weights lie; null on the heap.
  const std::shared_ptr<shm::Segment>& segment() const { return segment_; }
  // Versions that somebody reads.
  size_t pinned_versions() const;
  // Versions kept for delay compensation.
  size_t reference_versions() const { return references_.versions(); }
  size_t waiting_pulls() const { return engine_.waiting_pulls() + blocked_.size(); }

 private:
  // What becomes of the chunks of the sub-push that a stream is sending.
  enum class Fate {
    kStage,
    kAnswer,   // its bytes are not needed: only the commit is looked at
    kSwallow,  // refused: said once, the rest of the chunks is passed over
  };
  struct Arriving {
    Sequence sequence;
    bool seed = false;
    Fate fate = Fate::kStage;
    StagedPush staged;
    bool shared_memory = false;  // its bytes come in the worker's segment, ...
    bool copied = false;         // ... and are taken out of it before anything looks at them
    // It was refused for now: what is still on its way of it is nobody's fault.
    bool to_be_repeated = false;
  };
  struct Held {
    StagedPush staged;
    double gradient_norm = 0;
    bool shared_memory = false;  // its bytes are in the worker's segment
    References::Use base;
  };
  // A pull that was asked for and not yet handed to the peer.
  struct Asked {
    Peer* peer = nullptr;
    // Nullopt for a reader.
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
  // A stream that still sends from a version, or has been lent it.
  struct Holder {
    Peer* peer = nullptr;
    PullId id;
    absl::Time since;
    std::weak_ptr<const void> hold;
  };
  struct Pinned {
    std::weak_ptr<const PinnedView> view;
    PastState state;
    std::vector<Holder> holders;
  };

  // In a copy: so far as it has heard.
  bool HasLeft(const Sender& sender) const;
  void Begin(const Caller& caller, const wire::PushChunk& chunk);
  absl::Status Stage(const wire::PushChunk& chunk, rpc::Payload payload, Arriving& arriving) const;
  // Pushes that lie in shared memory are copied as they come. Their worker can write there at any time; a push that is
  // only applied, once, may be read where it lies, since any value will do for that.
  bool CopiesPushes() const;
  // What to do with the sub-push that this chunk begins; an error is for the caller.
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
  // To the pushes that the step is made of.
  static std::vector<std::pair<Sender, Answer>> AnswersOf(const ApplyAction& apply);
  // Tells the worker, once the journal lets it.
  void Tell(const Sender& sender, const Answer& answer);
  // The weights that a push was computed from, if they are kept and not those of now.
  SliceView Reference(const ApplyAction::Part& part);
  void TakeCut();
  // What is answered before it is applied must not lie where its worker writes the next gradient.
  void Keep(const PushRef& push);

  // Hands the weights to the peer, or keeps the pull until that is possible.
  void Serve(const Asked& asked);
  bool TryServe(const Asked& asked);
  // The current version to send from; when too many others are being sent from, the newest of those that will do for
  // this pull. Null when there is none.
  Pinned* Pin(const Asked& asked, std::shared_ptr<const PinnedView>& view);
  // The average of the weights as it is now; null where too many of its versions are being sent from.
  std::shared_ptr<const PinnedView> PinAveraged();
  // Whether the version may answer the pull although it is superseded.
  bool WillDo(const PastState& state, const Asked& asked) const;
  // For the peer to keep as long as it reads.
  std::shared_ptr<const PinnedView> Hold(Pinned& pinned, const std::shared_ptr<const PinnedView>& view,
                                         const Asked& asked);
  // Pulls that have waited long for memory end the streams that hold the oldest version.
  void EndLateReaders(absl::Time now);
  void Forget(const Peer* peer);
  // Makes room for one more pull of this caller among those that wait for memory.
  void ForgetOldest(const Caller& caller);
  void NotifyBlocked(Blocked& blocked, absl::Time now);
  Peer* Find(const Sender& sender) const;
  // A push that is refused for now: those behind it, which are on their way, have to come again too.
  void NoteToBeRepeated(const Caller& caller, Sequence sequence);
  // Of a push that is ahead of its turn: the one that has to come again before it. Nothing: a gap of the worker's own.
  std::optional<Sequence> AwaitedAgain(const Caller& caller, Sequence sequence) const;
  void Refuse(Peer& peer, const wire::PushChunk& chunk, const absl::Status& status);

  const ShardConfig config_;
  StagingBudget& budget_;
  ServiceMetrics& metrics_;
  const TimeSource& time_;
  Engine engine_;
  const std::shared_ptr<shm::Segment> segment_;
  ShardState state_;
  Version version_;                   // of state_; the engine's may be ahead while actions are carried out
  std::set<Sender> set_;              // of members
  std::map<Sender, Member> members_;  // with an open stream
  References references_;             // before held_, whose uses it counts
  std::map<const Peer*, Arriving> arriving_;
  std::map<const Peer*, Sequence> to_be_repeated_;  // the first push that each was refused for now
  std::map<PushRef, Held> held_;                    // complete and checked
  std::optional<WorkerId> pushing_;                 // whose push the engine's actions follow from
  std::vector<Blocked> blocked_;
  std::vector<Pinned> pinned_;                             // oldest first
  std::vector<std::weak_ptr<const PinnedView>> averaged_;  // the same of the average
  std::map<Sender, Gap> lost_;                             // what each of the members must be told
  ShardJournal* journal_ = nullptr;
  // In a copy: what the engine is to be, but for the workers, of each its newest incarnation.
  std::optional<EngineState> replica_;
  std::map<WorkerId, WorkerClock> replica_workers_;  // members
  std::map<WorkerId, Incarnation> replica_gone_;     // the newest that have left
  bool awaits_snapshot_;                             // the first one
  std::function<void(ShardCut)> take_cut_;           // null: none is wanted
  uint64_t cut_at_ = 0;
};

}  // namespace slackline::ps
