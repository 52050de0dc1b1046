// A shard of a simulated server: the engine and the numbers of a real shard, without the network.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "ps/consistency/engine.h"
#include "ps/shard/references.h"
#include "ps/shard/shard_state.h"
#include "simulator/computation.h"

namespace slackline::simulator {

// Reply of a shard to a worker.
struct ShardReply {
  ShardId shard;
  ps::Sender to;
  // The clock of the slowest live worker, as seen by the shard.
  Clock64 clock_min;
  std::optional<ps::Answer> answer;
  // A served pull: the version, and the weights if anything is computed.
  struct Served {
    PullId id;
    Version version;
    ps::SliceView weights;
  };
  std::optional<Served> served;
  // Reason why a push or a pull was refused.
  absl::Status refused;
};

struct ShardSpec {
  ShardId id;
  ps::ShardExtent extent;
  std::vector<ps::GroupRun> groups;  // same as in ps::ShardState
  uint64_t chunk_elements = 0;
  uint32_t window = 1;          // steps of one worker in flight
  uint32_t references_max = 0;  // versions kept for delay compensation
};

// Thread-safety: none.
class Shard {
 public:
  // Creates a shard. Without `optimizer` the shard has no values.
  Shard(const ShardSpec& spec, const ps::EngineConfig& engine, const std::optional<OptimizerConfig>& optimizer);

  const ShardSpec& spec() const { return spec_; }
  Clock64 clock_min() const { return engine_.clock_min(); }

  // Takes its part of the model's first weights, unless the shard already has weights.
  absl::Status Seed(absl::Span<const float> weights);

  absl::Status SetMembers(const ps::MemberSet& set);
  void SetStalenessBound(uint64_t bound);
  absl::Status Hello(const ps::HelloEvent& hello);
  void Disconnected(const ps::Sender& sender) { engine_.Disconnected(sender); }
  // Handles a push. `gradient` is that of the whole model.
  void Push(ps::PushEvent push, std::shared_ptr<const Gradient> gradient);
  void Pull(const ps::PullEvent& pull, absl::Time now);
  void Tick(absl::Time now);

  // Returns the replies since the last call, in order.
  std::vector<ShardReply> TakeReplies() { return std::exchange(replies_, {}); }
  // Returns the weights for evaluations: the average if one is kept, otherwise the current weights.
  ps::SliceView Evaluated() const { return state_ && state_->averages() ? state_->AveragedView() : View(); }
  uint64_t samples_applied() const { return engine_.samples_applied(); }
  // Returns the current weights.
  ps::SliceView View() const { return state_ ? state_->View() : ps::SliceView(); }
  // Returns the weights that workers pull.
  ps::SliceView PulledView() const { return state_ ? state_->PulledView() : ps::SliceView(); }

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
  // Returns the shard's part of the gradient.
  std::vector<ps::EncodedPiece> PiecesOf(const Gradient& gradient) const;
  ps::SliceView Reference(const ps::ApplyAction::Part& part) const;

  const ShardSpec spec_;
  const bool measures_;  // true if the norm of each push is measured
  ps::Engine engine_;
  std::unique_ptr<ps::ShardState> state_;
  ps::References references_;  // declared before staged_, whose uses it counts
  std::map<ps::PushRef, Staged> staged_;
  std::vector<ShardReply> replies_;
};

}  // namespace slackline::simulator
