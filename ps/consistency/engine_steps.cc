// What the modes make of pushes: which of them are a step together, when, and with which weights.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/algorithm/container.h"
#include "common/base/check.h"
#include "ps/consistency/engine.h"

namespace slackline::ps {
namespace {

// How often a step of a large job plans its end, at most, while pushes come.
constexpr size_t kPlansOfStep = 64;

}  // namespace

void Engine::Settle(Actions& actions) {
  if (config_.mode == Mode::kBsp) {
    while (SettleBspStep(actions)) {
    }
  } else if (config_.mode == Mode::kSoftsync) {
    ApplyFullGroups(actions);
  } else if (config_.mode == Mode::kQuorum) {
    while (OpenStepSize() >= QuorumSize() && GraceIsOver()) ApplyOpenStep(actions);
  }
  ServePulls(actions);
}

void Engine::Take(const PushEvent& push, Worker& worker, Actions& actions) {
  if (config_.mode == Mode::kSoftsync) return Accept(push, worker, actions);
  if (config_.mode == Mode::kAsync || config_.mode == Mode::kSsp) return ApplyAlone(push, worker, actions);
  if (config_.grace) {
    if (push.base == worker.pulled) worker.turns.Add(push.at - worker.pulled_at);
    worker.samples = push.samples;
  }
  {
    Change change(*this, push.sender.worker, worker);
    worker.held[push.sequence] = {push.base, push.samples, push.at};
  }
  AnswerLate(push.sender.worker, worker, actions);
}

uint64_t Engine::Staleness(const Version& base) const {
  if (base.lineage != version_.lineage || base.number > version_.number) return 0;
  return version_.number - base.number;
}

double Engine::LrFactor(uint64_t staleness) const {
  if (config_.staleness_lr == StalenessLr::kNone) return 1;
  return 1 / static_cast<double>(std::max<uint64_t>(1, staleness));
}

double Engine::MeanFactor(uint64_t staleness) const {
  if (config_.mode == Mode::kSoftsync) return LrFactor(staleness);
  return 1 / static_cast<double>(1 + staleness);
}

void Engine::Finish(const Sender& sender, Worker& worker, const Answer& answer, Actions& actions) {
  SLACKLINE_CHECK(answer.sequence == worker.clock.Next());
  Change change(*this, sender.worker, worker);
  worker.held.erase(answer.sequence);
  worker.clock = answer.sequence;
  worker.answers.push_back(answer);
  if (worker.answers.size() > config_.window_max) worker.answers.erase(worker.answers.begin());
  actions.push_back(AnswerAction{sender, answer, /*repeated=*/false});
}

// --- One push a step --------------------------------------------------------------------------------------------

void Engine::ApplyAlone(const PushEvent& push, Worker& worker, Actions& actions) {
  const uint64_t staleness = Staleness(push.base);
  ++version_.number;
  samples_applied_ += push.samples;
  ApplyAction apply;
  apply.parts.push_back({{push.sender, push.sequence}, 1.0, push.samples, staleness, push.base});
  apply.lr_scale = LrFactor(staleness);
  if (config_.weighting == Weighting::kSamples) {
    apply.lr_scale *= static_cast<double>(push.samples) / static_cast<double>(config_.samples_nominal);
  }
  apply.average_rate = 1.0 / static_cast<double>(workers_.size());
  apply.samples = push.samples;
  apply.workers = workers_.size();
  apply.version = version_;
  actions.push_back(std::move(apply));
  Finish(push.sender, worker, {push.sequence, Outcome::kApplied, DiscardReason::kNone, version_, staleness}, actions);
}

// --- The mean of several ----------------------------------------------------------------------------------------

ApplyAction Engine::Mean(const std::vector<Taken>& pushes, double average_rate) {
  SLACKLINE_CHECK(!pushes.empty());
  const bool slowed = (config_.mode == Mode::kSoftsync && config_.staleness_lr == StalenessLr::kInverse) ||
                      (config_.mode == Mode::kQuorum && config_.count_late);
  ApplyAction apply;
  apply.samples = 0;
  for (const Taken& push : pushes) apply.samples += push.samples;
  double kept = 0;  // the weighted mean of what staleness leaves
  for (const Taken& push : pushes) {
    const uint64_t staleness = Staleness(push.base);
    double weight = config_.weighting == Weighting::kUniform
                        ? 1 / static_cast<double>(pushes.size())
                        : static_cast<double>(push.samples) / static_cast<double>(apply.samples);
    if (slowed) weight *= MeanFactor(staleness);
    kept += weight;
    apply.parts.push_back({push.push, weight, push.samples, staleness, push.base});
  }
  if (slowed) {
    for (ApplyAction::Part& part : apply.parts) part.weight /= kept;
    apply.lr_scale = kept;
  }
  apply.batches = config_.weighting == Weighting::kUniform
                      ? static_cast<double>(pushes.size())
                      : static_cast<double>(apply.samples) / static_cast<double>(config_.samples_nominal);
  apply.average_rate = average_rate;
  ++version_.number;
  stepped_at_ = now_;
  best_rate_ = 0;
  planned_until_ = absl::InfinitePast();
  samples_applied_ += apply.samples;
  apply.workers = workers_.size();
  apply.version = version_;
  return apply;
}

void Engine::ApplyHeld(const std::vector<Taken>& pushes, double average_rate, Actions& actions) {
  std::vector<Taken> all = pushes;
  all.insert(all.end(), accepted_.begin(), accepted_.end());
  accepted_.clear();
  const ApplyAction apply = Mean(all, average_rate);
  actions.push_back(apply);
  for (size_t i = 0; i < pushes.size(); ++i) {
    const ApplyAction::Part& part = apply.parts[i];
    Finish(part.push.sender, *Find(part.push.sender),
           {part.push.sequence, Outcome::kApplied, DiscardReason::kNone, version_, part.staleness}, actions);
  }
}

// --- bsp --------------------------------------------------------------------------------------------------------

// The step after the slowest clock is ready when every live worker has pushed it or is past it already.
bool Engine::SettleBspStep(Actions& actions) {
  if (workers_.empty() || (!missing_.empty() && missing_.min() == clock_min())) return false;
  const Sequence step = clock_min().Next();
  std::vector<Taken> pushes;
  for (const auto& [id, worker] : workers_) {
    if (worker.clock >= step) continue;
    const HeldPush& held = worker.held.at(step);
    pushes.push_back({{{id, worker.incarnation}, step}, held.base, held.samples});
  }
  ApplyHeld(pushes, 1, actions);
  return true;
}

// --- softsync ---------------------------------------------------------------------------------------------------

size_t Engine::GroupSize() const { return std::max<size_t>(1, workers_.size() / config_.softsync_n); }

void Engine::Accept(const PushEvent& push, Worker& worker, Actions& actions) {
  const uint64_t staleness = Staleness(push.base);
  accepted_.push_back({{push.sender, push.sequence}, push.base, push.samples});
  // Before the answer, so that the push that fills a step is in what its worker pulls.
  ApplyFullGroups(actions);
  Finish(push.sender, worker, {push.sequence, Outcome::kApplied, DiscardReason::kNone, version_, staleness}, actions);
}

void Engine::ApplyFullGroups(Actions& actions) {
  const size_t size = GroupSize();
  while (accepted_.size() >= size) {
    ApplyAccepted(size, static_cast<double>(size) / static_cast<double>(workers_.size()), actions);
  }
}

void Engine::ApplyAccepted(size_t count, double average_rate, Actions& actions) {
  const auto end = accepted_.begin() + static_cast<std::ptrdiff_t>(count);
  actions.push_back(Mean({accepted_.begin(), end}, average_rate));
  accepted_.erase(accepted_.begin(), end);
}

// --- quorum -----------------------------------------------------------------------------------------------------

size_t Engine::QuorumSize() const {
  // What a product like 0.55 x 20 has too much is no push.
  constexpr double kRounding = 1e-9;
  const double pushes = std::ceil(config_.quorum * static_cast<double>(workers_.size()) - kRounding);
  return std::max<size_t>(1, static_cast<size_t>(pushes));
}

std::vector<Engine::Taken> Engine::PushesOfOpenStep() const {
  std::vector<Taken> pushes;
  for (const auto& [id, worker] : workers_) {
    if (worker.held.empty()) continue;
    const auto& [sequence, held] = *worker.held.begin();
    pushes.push_back({{{id, worker.incarnation}, sequence}, held.base, held.samples});
  }
  return pushes;
}

bool Engine::Late(const HeldPush& push) const { return config_.mode == Mode::kQuorum && push.base != version_; }

// A push whose turn it is belongs to the open step, or is answered.
void Engine::AnswerLate(WorkerId id, Worker& worker, Actions& actions) {
  const Sender sender{id, worker.incarnation};
  while (!worker.held.empty() && Late(worker.held.begin()->second)) {
    const auto [sequence, push] = *worker.held.begin();
    // Its bytes stay until the next step, so that a worker may have only so many.
    const auto accepted = absl::c_count_if(accepted_, [&](const Taken& taken) { return taken.push.sender == sender; });
    if (config_.count_late && accepted < config_.window_max) {
      accepted_.push_back({{sender, sequence}, push.base, push.samples});
      const uint64_t staleness = Staleness(push.base);
      Finish(sender, worker, {sequence, Outcome::kApplied, DiscardReason::kNone, version_, staleness}, actions);
    } else {
      actions.push_back(DropAction{{sender, sequence}});
      Finish(sender, worker, {sequence, Outcome::kDiscarded, DiscardReason::kLate, version_, 0}, actions);
    }
  }
}

bool Engine::GraceIsOver() {
  const size_t size = OpenStepSize();
  if (!config_.grace || size == workers_.size() || stepped_at_ == absl::InfinitePast()) return true;
  // The plan is made anew when its time is over or some more pushes are there: in large jobs not at each of them.
  const size_t more = std::max<size_t>(1, workers_.size() / kPlansOfStep);
  if (now_ < planned_until_ && size >= planned_size_ && size < planned_size_ + more) return false;
  StepOutlook step{.begun = stepped_at_};
  for (const auto& [id, worker] : workers_) {
    if (!worker.held.empty()) {
      const HeldPush& held = worker.held.begin()->second;
      step.samples += CountsAs(held.samples);
      if (config_.quorum_deadline > absl::ZeroDuration()) {
        step.latest = std::min(step.latest, held.at + config_.quorum_deadline);
      }
    } else if (worker.pulled == version_) {
      worker.turns.AddLikely(worker.pulled_at, now_, CountsAs(worker.samples), step.likely);
    }
  }
  planned_until_ = BestEndOfStep(std::move(step), now_, best_rate_);
  planned_size_ = size;
  return planned_until_ <= now_;
}

double Engine::CountsAs(uint64_t samples) const {
  return config_.weighting == Weighting::kUniform ? 1 : static_cast<double>(samples);
}

bool Engine::Overdue(absl::Time now) const {
  if (config_.mode != Mode::kQuorum || OpenStepSize() == 0) return false;
  absl::Time first = absl::InfiniteFuture();
  bool awaited = false;  // true if a missing worker may still push: its last push here was not late
  for (const auto& [id, worker] : workers_) {
    if (!worker.held.empty()) {
      first = std::min(first, worker.held.begin()->second.at);
    } else {
      const Answer last = worker.answers.empty() ? Answer() : worker.answers.back();
      const bool late = last.staleness > 0 || last.reason == DiscardReason::kLate;
      awaited = awaited || !(late || last.reason == DiscardReason::kLineage);
    }
  }
  if (config_.quorum_deadline > absl::ZeroDuration() && now >= first + config_.quorum_deadline) return true;
  return !awaited && now >= first + config_.standstill_after;
}

void Engine::ApplyOpenStep(Actions& actions) {
  const std::vector<Taken> pushes = PushesOfOpenStep();
  ApplyHeld(pushes, static_cast<double>(pushes.size()) / static_cast<double>(workers_.size()), actions);
  for (auto& [id, worker] : workers_) AnswerLate(id, worker, actions);
}

}  // namespace slackline::ps
