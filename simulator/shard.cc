#include "simulator/shard.h"

#include <utility>
#include <variant>

#include "common/check.h"

namespace slackline::simulator {

Shard::Shard(const ShardSpec& spec, const ps::EngineConfig& engine, const std::optional<ps::OptimizerConfig>& optimizer)
    : spec_(spec), engine_(engine) {
  if (optimizer) state_ = std::make_unique<ps::ShardState>(spec.extent, *optimizer, spec.chunk_elements);
}

absl::Status Shard::Seed(absl::Span<const float> weights) {
  if (state_ == nullptr || state_->seeded()) return absl::OkStatus();
  return state_->Seed(ByteSegments(AsBytes(weights.subspan(spec_.extent.begin, spec_.extent.size()))));
}

absl::Status Shard::SetMembers(Epoch epoch, absl::Span<const ps::MemberEntry> members) {
  ps::Actions actions;
  const absl::Status status = engine_.SetMembers(epoch, members, actions);
  Execute(actions);
  return status;
}

absl::Status Shard::Hello(const ps::HelloEvent& hello) {
  ps::Actions actions;
  const absl::Status status = engine_.Hello(hello, actions);
  Execute(actions);
  return status;
}

void Shard::Push(const ps::PushEvent& push, std::shared_ptr<const Gradient> gradient) {
  if (engine_.Admit(push.sender, push.sequence) == ps::Engine::Admission::kStage) {
    staged_[{push.sender, push.sequence}] = std::move(gradient);
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
    const Gradient& gradient = *staged->second;
    const absl::Span<const float> values(gradient.push.get() + spec_.extent.begin, spec_.extent.size());
    contributions.push_back(
        {{{spec_.extent.size(), codec::Codec(), ByteSegments(AsBytes(values))}}, part.weight, gradient.norm});
  }
  if (state_ != nullptr) state_->Apply(contributions, {apply.lr_scale, apply.average_rate, apply.samples});
  for (const ps::ApplyAction::Part& part : apply.parts) staged_.erase(part.push);
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
  Reply(serve.sender).served = ShardReply::Served{serve.id, engine_.version(), View()};
}

void Shard::Execute(const ps::RefuseAction& refuse) { Reply(refuse.sender).refused = refuse.status; }

}  // namespace slackline::simulator
