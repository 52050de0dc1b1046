// What the engine decided is done here, in its order; and pulls are served.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/log/logging.h"
#include "common/process/kill_point.h"
#include "ps/base/readable.h"
#include "ps/host/shard_host.h"
#include "ps/shard/learning_rates.h"
#include "ps/shard/step_arguments.h"

namespace slackline::ps {
namespace {

wire::DiscardReason ToWire(DiscardReason reason) {
  switch (reason) {
    case DiscardReason::kNone:
      return wire::DISCARD_NONE;
    case DiscardReason::kLineage:
      return wire::DISCARD_LINEAGE;
    case DiscardReason::kLate:
      return wire::DISCARD_LATE;
    case DiscardReason::kOutlier:
      return wire::DISCARD_OUTLIER;
  }
  return wire::DISCARD_NONE;
}

std::string Culprit(const WaitingAction& waiting) {
  return absl::StrCat("worker ", waiting.culprit.value(), " (", waiting.culprit_name, "), which is at clock ",
                      waiting.culprit_clock.value(), ", since ", Readable(waiting.waited));
}

std::string WhoIsAwaited(const WaitingAction& waiting, const EngineConfig& config) {
  if (waiting.own_push) {
    return absl::StrCat("waits for push ", waiting.own_push->value(),
                        " of this worker itself, which has not come, since ", Readable(waiting.waited));
  }
  if (!waiting.step) {
    return absl::StrCat("waits for ", Culprit(waiting),
                        "; it goes on when that worker pushes, or when the scheduler declares it dead");
  }
  const WaitingAction::OpenStep& step = *waiting.step;
  if (step.held >= step.needed) {
    return absl::StrCat("has the ", step.needed,
                        " pushes of its next step and waits a little longer for likely ones (consistency.grace); ",
                        Culprit(waiting), " has not pushed yet");
  }
  std::string text = absl::StrCat("has ", step.held, " of the ", step.needed, " pushes of its next step and waits for ",
                                  step.missing > 1 ? absl::StrCat("one of ", step.missing, " workers, such as ") : "",
                                  Culprit(waiting), "; it goes on when enough of them push or are declared dead");
  if (config.quorum_deadline > absl::ZeroDuration()) {
    absl::StrAppend(&text, ", or ", Readable(config.quorum_deadline), " after the first push of the step");
  }
  return text;
}

// Returns the answers to the pushes of the step.
std::vector<std::pair<Sender, Answer>> AnswersOf(const ApplyAction& apply) {
  std::vector<std::pair<Sender, Answer>> answers;
  for (const ApplyAction::Part& part : apply.parts) {
    answers.emplace_back(part.push.sender, Answer{part.push.sequence, Outcome::kApplied, DiscardReason::kNone,
                                                  apply.version, part.staleness});
  }
  return answers;
}

}  // namespace

void ShardHost::Execute(const Actions& actions) {
  for (const Action& action : actions) {
    std::visit([this](const auto& what) { Execute(what); }, action);
  }
}

void ShardHost::Execute(const ApplyAction& apply) {
  std::vector<Contribution> contributions;
  std::vector<PushRates> rates;
  for (const ApplyAction::Part& part : apply.parts) {
    const auto held = held_.find(part.push);
    SLACKLINE_CHECK(held != held_.end());
    contributions.push_back({held->second.staged.pieces(), part.weight, held->second.gradient_norm, Reference(part)});
    rates.push_back({.weight = part.weight, .rates = held->second.learning_rates});
  }
  StepArguments arguments = ArgumentsOf(apply);
  arguments.learning_rates = MeanRates(rates, state_.learning_rates(apply.batches), config_.optimizer.aggregation);
  const bool recorded = journal_ != nullptr && journal_->Follows(config_.shard);
  const bool single = contributions.size() == 1 && contributions.front().reference.chunks() == 0;
  std::shared_ptr<StagedPush> pushed;  // its bytes are read below
  std::shared_ptr<std::vector<float>> mean;
  if (recorded && single) {
    // Now, so that the copy's step is taken while this one is.
    Held& held = held_.at(apply.parts.front().push);
    // Its worker may be put out and come back, and write there, before the bytes have left.
    if (held.shared_memory) held.staged.Own();
    contributions.front().pieces = held.staged.pieces();
    pushed = std::make_shared<StagedPush>(std::move(held.staged));
    journal_->Stepped(config_.shard, {.version = apply.version,
                                      .arguments = arguments,
                                      .push = pushed,
                                      .weight = contributions.front().weight,
                                      .gradient_norm = contributions.front().gradient_norm,
                                      .mean = nullptr,
                                      .answers = AnswersOf(apply)});
  } else if (recorded) {
    mean = std::make_shared<std::vector<float>>(config_.extent.pushed());
  }
  const absl::Time begin = time_.Now();
  state_.Apply(contributions, arguments, mean == nullptr ? absl::Span<float>() : absl::MakeSpan(*mean));
  metrics_.apply_seconds.Observe(absl::ToDoubleSeconds(time_.Now() - begin));
  kill_point::Passed("applied");
  version_ = apply.version;
  if (mean != nullptr) {
    journal_->Stepped(config_.shard, {.version = apply.version,
                                      .arguments = arguments,
                                      .push = nullptr,
                                      .weight = 1,
                                      .gradient_norm = 0,
                                      .mean = mean,
                                      .answers = AnswersOf(apply)});
  }
  for (const ApplyAction::Part& part : apply.parts) {
    metrics_.staleness.Observe(static_cast<double>(part.staleness));
    held_.erase(part.push);
  }
  if (awaits_cut() && version_.number >= cut_at_) TakeCut();
}

SliceView ShardHost::Reference(const ApplyAction::Part& part) {
  if (config_.references_max == 0 || part.staleness == 0) return {};
  if (const SliceView* const view = references_.Find(part.base)) return *view;
  metrics_.pushes_uncompensated.Add();
  return {};
}

void ShardHost::Keep(const PushRef& push) {
  const auto held = held_.find(push);
  if (held != held_.end() && held->second.shared_memory) held->second.staged.Own();
}

void ShardHost::Execute(const DropAction& drop) { held_.erase(drop.push); }

void ShardHost::Execute(const AnswerAction& action) {
  const Answer& answer = action.answer;
  const bool applied = answer.outcome == Outcome::kApplied;
  if (!action.repeated) {
    if (applied) metrics_.pushes_applied.Add();
    if (!applied) metrics_.Discarded(answer.reason, std::string(engine_.name(action.sender.worker)));
    Keep({action.sender, answer.sequence});
    kill_point::Passed("ack");
  }
  Tell(action.sender, answer);
}

void ShardHost::Tell(const Sender& sender, const Answer& answer) {
  if (journal_ == nullptr && Find(sender) == nullptr) return;  // it repeats the push when it is back
  const bool applied = answer.outcome == Outcome::kApplied;
  wire::ServerItem item;
  wire::PushAnswer& out = *item.mutable_answer();
  out.set_shard(config_.shard.value());
  out.set_sequence(answer.sequence.value());
  out.set_outcome(applied ? wire::OUTCOME_APPLIED : wire::OUTCOME_DISCARDED);
  out.set_reason(ToWire(answer.reason));
  slackline::ps::ToWire(answer.version, *out.mutable_version());
  out.set_staleness(answer.staleness);
  out.set_clock_min(engine_.clock_min().value());
  const auto tell = [this, sender, item = std::move(item)] {
    if (Peer* const peer = Find(sender)) peer->Send(item);
  };
  journal_ == nullptr ? tell() : journal_->Answered(config_.shard, sender, answer, tell);
}

void ShardHost::Execute(const RefuseAction& refuse) {
  metrics_.Refused(refuse.status.code());
  Peer* const peer = Find(refuse.sender);
  if (peer == nullptr) return;
  wire::ServerItem item;
  wire::Refused& out = *item.mutable_refused();
  out.set_code(static_cast<uint32_t>(refuse.status.code()));
  out.set_message(absl::StrCat("shard ", config_.shard.value(), ": ", refuse.status.message()));
  out.set_shard(config_.shard.value());
  out.set_sequence(refuse.sequence.value());
  out.set_expected_sequence(refuse.expected.value());
  peer->Send(item);
}

void ShardHost::Execute(const WaitingAction& waiting) {
  Peer* const peer = Find(waiting.sender);
  if (peer == nullptr) return;
  wire::ServerItem item;
  wire::Waiting& out = *item.mutable_waiting();
  out.set_shard(config_.shard.value());
  out.set_pull(waiting.id.value());
  out.set_culprit(waiting.culprit.value());
  out.set_culprit_clock(waiting.culprit_clock.value());
  out.set_waited_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(waiting.waited)));
  out.set_message(absl::StrCat("shard ", config_.shard.value(), " ", WhoIsAwaited(waiting, config_.engine)));
  peer->Send(item);
}

void ShardHost::Execute(const LostAction& lost) {
  const uint64_t count = lost.to.value() - lost.from.value();
  Gap& gap = lost_[lost.sender];
  gap = {gap.to == lost.from ? gap.from : lost.from, lost.to};
  metrics_.pushes_lost.Add(static_cast<double>(count));
  log::Warning("shard ", config_.shard.value(), ": pushes ", lost.from.value() + 1, " to ", lost.to.value(),
               " of worker ", lost.sender.worker.value(), " were lost by a restore");
}

// --- Pulls ------------------------------------------------------------------------------------------------------

void ShardHost::Pull(const Caller& caller, const PullEvent& pull, const std::optional<Version>& known, bool averaged) {
  ForgetOldest(caller);
  Asked asked{caller.peer,          std::nullopt,         pull.id,     pull.clock, known, caller.window,
              caller.shared_memory, caller.pull_encoding, time_.Now(), averaged};
  if (!caller.reader) asked.sender = caller.sender;
  if (caller.reader) return Serve(asked);
  const auto member = members_.find(caller.sender);
  SLACKLINE_CHECK(member != members_.end() && member->second.peer == caller.peer);
  std::deque<Asked>& waiting = member->second.asked;
  waiting.push_back(asked);
  if (waiting.size() > caller.window) {
    waiting.pop_front();
    caller.peer->Wasted();
  }
  Actions actions;
  engine_.Pull(pull, asked.since, actions);
  Execute(actions);
}

void ShardHost::Execute(const ServeAction& serve) {
  const auto member = members_.find(serve.sender);
  if (member == members_.end()) return;
  std::deque<Asked>& waiting = member->second.asked;
  const auto found =
      std::find_if(waiting.begin(), waiting.end(), [&](const Asked& asked) { return asked.id == serve.id; });
  if (found == waiting.end()) return;
  const Asked asked = *found;
  waiting.erase(found);
  if (pushing_ && *pushing_ != serve.sender.worker) {
    metrics_.Awaited(std::string(engine_.name(*pushing_)), time_.Now() - asked.since);
  }
  Serve(asked);
}

void ShardHost::Serve(const Asked& asked) {
  if (TryServe(asked)) return;
  const absl::Time now = time_.Now();
  blocked_.push_back({asked, now, now + config_.engine.notice_every});
}

bool ShardHost::TryServe(const Asked& asked) {
  if (!state_.seeded() || awaits_snapshot_ || (journal_ != nullptr && !journal_->MayServe())) return false;
  PullReply reply;
  reply.shard = config_.shard;
  reply.id = asked.id;
  reply.version = version_;
  reply.clock_min = engine_.clock_min();
  reply.queued_max = asked.queued_max;
  reply.shared_memory = asked.shared_memory;
  reply.encoding = asked.encoding;
  reply.encoded_elements = config_.extent.trained;
  // Whoever has some version has what is frozen.
  reply.elements = asked.known ? config_.extent.pushed() : config_.extent.size();
  const auto kind = asked.sender ? PinnedVersions::Kind::kWorker : PinnedVersions::Kind::kReader;
  const bool unpredicted = !asked.sender && state_.predicts();
  if (asked.averaged || (unpredicted && asked.known != version_)) {
    const std::shared_ptr<const PinnedView> view =
        asked.averaged
            ? pinned_.PinAside(PinnedVersions::Aside::kAverage, version_, [this] { return state_.AveragedView(); })
            : pinned_.PinAside(PinnedVersions::Aside::kUnpredicted, version_, [this] { return state_.View(); });
    if (view == nullptr) return false;
    reply.weights = pinned_.Hold(view, kind, asked.peer, asked.id, time_.Now());
  } else if (asked.known != version_) {
    // Holds the version until the peer does.
    const std::shared_ptr<const PinnedView> view = pinned_.Pin(
        kind, {version_, engine_.clock_min()}, [this] { return state_.PulledView(); },
        [&](const PastState& state) { return WillDo(state, asked); });
    if (view == nullptr) return false;
    reply.version = view->version();
    if (asked.known != reply.version) reply.weights = pinned_.Hold(view, kind, asked.peer, asked.id, time_.Now());
    if (asked.sender) references_.Sent(*asked.sender, asked.queued_max, reply.version, view->view());
  } else if (asked.sender && config_.references_max > 0) {
    references_.Sent(*asked.sender, asked.queued_max, version_, state_.PulledView());
  }
  asked.peer->Serve(std::move(reply));
  metrics_.Served(time_.Now() - asked.since);
  return true;
}

bool ShardHost::WillDo(const PastState& state, const Asked& asked) const {
  // A reader wants the weights as they are.
  if (!asked.sender) return false;
  const Version& version = state.version;
  const bool back = asked.known && asked.known->lineage == version.lineage && version.number < asked.known->number;
  return !back && engine_.MayServe(state, *asked.sender, asked.clock);
}

void ShardHost::Retry() {
  if (blocked_.empty()) return;
  std::vector<Blocked> waiting = std::move(blocked_);
  blocked_.clear();
  for (Blocked& blocked : waiting) {
    if (!TryServe(blocked.asked)) blocked_.push_back(std::move(blocked));
  }
}

void ShardHost::Forget(const Peer* peer) {
  std::erase_if(blocked_, [&](const Blocked& blocked) { return blocked.asked.peer == peer; });
  pinned_.Forget(peer);
}

void ShardHost::ForgetOldest(const Caller& caller) {
  const auto mine = [&](const Blocked& blocked) { return blocked.asked.peer == caller.peer; };
  if (std::count_if(blocked_.begin(), blocked_.end(), mine) < caller.window) return;
  blocked_.erase(std::find_if(blocked_.begin(), blocked_.end(), mine));
  caller.peer->Wasted();
}

void ShardHost::Tick() {
  const absl::Time now = time_.Now();
  Retry();
  for (Blocked& blocked : blocked_) NotifyBlocked(blocked, now);
  EndLateReaders(now);
  Actions actions;
  engine_.Tick(now, actions);
  Execute(actions);
}

void ShardHost::NotifyBlocked(Blocked& blocked, absl::Time now) {
  if (now < blocked.notice_at) return;
  blocked.notice_at = now + config_.engine.notice_every;
  wire::ServerItem item;
  wire::Waiting& out = *item.mutable_waiting();
  out.set_shard(config_.shard.value());
  out.set_pull(blocked.asked.id.value());
  out.set_waited_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(now - blocked.since)));
  const std::string awaited = !state_.seeded() ? "initial weights, which the first worker sends"
                              : journal_ != nullptr && (awaits_snapshot_ || !journal_->MayServe())
                                  ? "its backup, without which it serves nobody, or for the scheduler to give that up"
                              : awaits_snapshot_
                                  ? "its first snapshot to be on disk"
                                  : absl::StrCat("slow readers of older versions; at most ",
                                                 config_.pinned_versions_max, " are kept; their streams are ended");
  out.set_message(absl::StrCat("shard ", config_.shard.value(), " waits for ", awaited));
  blocked.asked.peer->Send(item);
}

void ShardHost::Notify(const Sender& sender, absl::Duration waited, const std::string& awaited) {
  Peer* const peer = Find(sender);
  if (peer == nullptr) return;
  wire::ServerItem item;
  wire::Waiting& out = *item.mutable_waiting();
  out.set_shard(config_.shard.value());
  out.set_waited_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(waited)));
  out.set_message(absl::StrCat("shard ", config_.shard.value(), " has an answer and waits for ", awaited));
  peer->Send(item);
}

void ShardHost::EndLateReaders(absl::Time now) {
  const absl::Time since = now - config_.engine.notice_every;
  if (journal_ != nullptr && !journal_->MayServe()) return;  // they wait for something else
  const auto late = [&](const Blocked& blocked) { return blocked.since <= since; };
  if (!state_.seeded() || std::none_of(blocked_.begin(), blocked_.end(), late)) return;
  // A worker is not ended for readers that other readers keep waiting.
  const bool for_readers = std::none_of(blocked_.begin(), blocked_.end(),
                                        [&](const Blocked& blocked) { return late(blocked) && blocked.asked.sender; });
  const PinnedVersions::Late ended = pinned_.HoldersSince(since, for_readers);
  // Ending a stream takes its holders out of the lists.
  for (const PinnedVersions::Holder& holder : ended.holders) {
    const std::string why = absl::StrCat(
        "shard ", config_.shard.value(), ": this stream holds version ", ToString(ended.version), " of pull ",
        holder.pull.value(), " since ", Readable(now - holder.since), " and others wait for its memory; at most ",
        config_.pinned_versions_max, " superseded versions are kept (limits.pinned_versions_max)");
    log::Warning(why);
    holder.peer->End(absl::ResourceExhaustedError(why));
  }
}

}  // namespace slackline::ps
