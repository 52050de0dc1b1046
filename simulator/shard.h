// One shard of a simulated server: the same engine and the same numbers as a real one's, without wires.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "ps/consistency/engine.h"
#include "ps/references.h"
#include "ps/shard_state.h"
#include "simulator/computation.h"

namespace slackline::simulator {

// What a shard tells a worker.
struct ShardReply {
  ShardId shard;
  ps::Sender to;
  // The clock of the slowest live worker, as seen by the shard.
  Clock64 clock_min;
  std::optional<ps::Answer> answer;
  // A pull that is served: the version, and the weights where anything is computed.
  struct Served {
    PullId id;
    Version version;
    ps::SliceView weights;
  };
  std::optional<Served> served;
  // Why nothing became of a push or a pull.
  absl::Status refused;
};

struct ShardSpec {
  ShardId id;
  ps::ShardExtent extent;
  std::vector<ps::GroupRun> groups;  // as ps::ShardState has them
  uint64_t chunk_elements = 0;
  uint32_t window = 1;          // steps of a worker in flight
  uint32_t references_max = 0;  // versions kept for delay compensation
};

// Thread-safety: none.
class Shard {
 public:
  // Without `optimizer` it has no numbers.
  Shard(const ShardSpec& spec, const ps::EngineConfig& engine, const std::optional<OptimizerConfig>& optimizer);

  const ShardSpec& spec() const { return spec_; }
  Clock64 clock_min() const { return engine_.clock_min(); }

  // Takes its part of the model's first weights, unless it has some.
  absl::Status Seed(absl::Span<const float> weights);

  absl::Status SetMembers(Epoch epoch, absl::Span<const ps::MemberEntry> members);
  void SetStalenessBound(uint64_t bound);
  absl::Status Hello(const ps::HelloEvent& hello);
  void Disconnected(const ps::Sender& sender) { engine_.Disconnected(sender); }
  // `gradient` is the whole model's.
  void Push(ps::PushEvent push, std::shared_ptr<const Gradient> gradient);
  void Pull(const ps::PullEvent& pull, absl::Time now);
  void Tick(absl::Time now);

  // What it has said since the last call, in order.
  std::vector<ShardReply> TakeReplies() { return std::exchange(replies_, {}); }
  // What evaluations are of: its weights as they are, or their average where one is kept.
  ps::SliceView Evaluated() const { return state_ && state_->averages() ? state_->AveragedView() : View(); }
  uint64_t samples_applied() const { return engine_.samples_applied(); }
  // Its weights as they are.
  ps::SliceView View() const { return state_ ? state_->View() : ps::SliceView(); }

 private:
  struct Staged {
    std::shared_ptr<const Gradient> gradient;
    ps::References::Use base;
  };

  ShardReply& Reply(const ps::Sender& to);
  void Execute(const ps::Actions& actions);
  void Execute(const ps::ApplyAction& apply);
  void Execute(const ps::DropAction& drop) { staged_.erase(drop.push); }
  void Execute(const ps::AnswerAction& answer);
  void Execute(const ps::ServeAction& serve);
  void Execute(const ps::RefuseAction& refuse);
  void Execute(const ps::WaitingAction&) {}
  void Execute(const ps::LostAction&) {}
  // The shard's part.
  std::vector<ps::EncodedPiece> PiecesOf(const Gradient& gradient) const;
  ps::SliceView Reference(const ps::ApplyAction::Part& part) const;

  const ShardSpec spec_;
  const bool measures_;  // the norm of each push
  ps::Engine engine_;
  std::unique_ptr<ps::ShardState> state_;
  ps::References references_;  // before staged_, whose uses it counts
  std::map<ps::PushRef, Staged> staged_;
  std::vector<ShardReply> replies_;
};

}  // namespace slackline::simulator
