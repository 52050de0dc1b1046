#include "simulator/shard.h"

#include <variant>
#include <vector>

#include "common/base/check.h"
#include "ps/shard/push_norm.h"
#include "ps/shard/step_arguments.h"

namespace slackline::simulator {

Shard::Shard(const ShardSpec& spec, const ps::EngineConfig& engine, const std::optional<OptimizerConfig>& optimizer)
    : spec_(spec), measures_(engine.outlier_factor > 0), engine_(engine), references_(spec.references_max) {
  if (optimizer) state_ = std::make_unique<ps::ShardState>(spec.extent, *optimizer, spec.groups, spec.chunk_elements);
}

absl::Status Shard::Seed(absl::Span<const float> weights) {
  if (state_ == nullptr || state_->seeded()) return absl::OkStatus();
  return state_->Seed(ByteSegments(AsBytes(weights.subspan(spec_.extent.begin, spec_.extent.size()))));
}

absl::Status Shard::SetMembers(const ps::MemberSet& set) {
  ps::Actions actions;
  const std::vector<ps::Sender> out = engine_.PutOutBy(set);
  const absl::Status status = engine_.SetMembers(set, actions);
  if (status.ok()) references_.Forget(out);
  Execute(actions);
  return status;
}

void Shard::SetStalenessBound(uint64_t bound) {
  ps::Actions actions;
  engine_.SetStalenessBound(bound, actions);
  Execute(actions);
}

absl::Status Shard::Hello(const ps::HelloEvent& hello) {
  ps::Actions actions;
  const absl::Status status = engine_.Hello(hello, actions);
  Execute(actions);
  return status;
}

void Shard::Push(ps::PushEvent push, std::shared_ptr<const Gradient> gradient) {
  if (engine_.Admit(push.sender, push.sequence) == ps::Engine::Admission::kStage) {
    ps::References::Use base;
    if (spec_.references_max > 0) base = ps::References::Use(&references_, push.base);
    if (state_ != nullptr && measures_) push.part_norm = ps::PushNorm(PiecesOf(*gradient), spec_.extent.trained);
    staged_[{push.sender, push.sequence}] = {std::move(gradient), std::move(base)};
  }
  ps::Actions actions;
  engine_.Push(push, actions);
  Execute(actions);
}

void Shard::Pull(const ps::PullEvent& pull, absl::Time now) {
  ps::Actions actions;
  engine_.Pull(pull, now, actions);
  Execute(actions);
}

void Shard::Tick(absl::Time now) {
  ps::Actions actions;
  engine_.Tick(now, actions);
  Execute(actions);
}

void Shard::Execute(const ps::Actions& actions) {
  for (const ps::Action& action : actions) {
    std::visit([this](const auto& what) { Execute(what); }, action);
  }
}

void Shard::Execute(const ps::ApplyAction& apply) {
  std::vector<ps::Contribution> contributions;
  for (const ps::ApplyAction::Part& part : apply.parts) {
    const auto staged = staged_.find(part.push);
    SLACKLINE_CHECK(staged != staged_.end());
    if (state_ == nullptr) continue;
    const Gradient& gradient = *staged->second.gradient;
    contributions.push_back({PiecesOf(gradient), part.weight, gradient.norm, Reference(part)});
  }
  if (state_ != nullptr) state_->Apply(contributions, ps::ArgumentsOf(apply));
  for (const ps::ApplyAction::Part& part : apply.parts) staged_.erase(part.push);
}

std::vector<ps::EncodedPiece> Shard::PiecesOf(const Gradient& gradient) const {
  const absl::Span<const float> values(gradient.push.get() + spec_.extent.begin, spec_.extent.pushed());
  return {{spec_.extent.pushed(), codec::Codec(), ByteSegments(AsBytes(values))}};
}

ps::SliceView Shard::Reference(const ps::ApplyAction::Part& part) const {
  const ps::SliceView* const view = part.staleness > 0 ? references_.Find(part.base) : nullptr;
  return view != nullptr ? *view : ps::SliceView();
}

ShardReply& Shard::Reply(const ps::Sender& to) {
  ShardReply& reply = replies_.emplace_back();
  reply.shard = spec_.id;
  reply.to = to;
  reply.clock_min = engine_.clock_min();
  return reply;
}

void Shard::Execute(const ps::AnswerAction& action) { Reply(action.sender).answer = action.answer; }

void Shard::Execute(const ps::ServeAction& serve) {
  const ShardReply::Served served{serve.id, engine_.version(), PulledView()};
  references_.Sent(serve.sender, spec_.window, served.version, served.weights);
  Reply(serve.sender).served = served;
}

void Shard::Execute(const ps::RefuseAction& refuse) { Reply(refuse.sender).refused = refuse.status; }

}  // namespace slackline::simulator
