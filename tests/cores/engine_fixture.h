// Shared code of the engine's scenarios, which read as scripts: one line an event, one line an action.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ps/consistency/engine.h"

namespace slackline::ps {

inline Sender A() { return {WorkerId(1), Incarnation(11)}; }
inline Sender B() { return {WorkerId(2), Incarnation(12)}; }
inline Sender C() { return {WorkerId(3), Incarnation(13)}; }
inline Sender D() { return {WorkerId(4), Incarnation(14)}; }

// Formats a part as worker:sequence*weight, with ~staleness at the end if the staleness is not 0.
inline std::string Show(const ApplyAction::Part& part) {
  return absl::StrCat(part.push.sender.worker.value(), ":", part.push.sequence.value(), "*", part.weight,
                      part.staleness > 0 ? absl::StrCat("~", part.staleness) : "");
}

inline std::string Show(const Answer& answer) {
  const char* outcome = answer.outcome == Outcome::kApplied        ? " applied"
                        : answer.reason == DiscardReason::kLate    ? " late"
                        : answer.reason == DiscardReason::kOutlier ? " outlier"
                                                                   : " discarded";
  return absl::StrCat(answer.sequence.value(), outcome, " staleness ", answer.staleness);
}

inline std::string Show(const WaitingAction& wait) {
  std::string text = absl::StrCat("waiting ", wait.sender.worker.value(), " for ", wait.culprit_name, " at ",
                                  wait.culprit_clock.value());
  if (wait.own_push) absl::StrAppend(&text, ", its own push ", wait.own_push->value());
  if (!wait.step) return text;
  return absl::StrCat(text, ", ", wait.step->held, " of ", wait.step->needed, " there, ", wait.step->missing,
                      " missing");
}

inline std::string Show(const Action& action) {
  if (const auto* apply = std::get_if<ApplyAction>(&action)) {
    std::string text = "apply";
    for (const auto& part : apply->parts) absl::StrAppend(&text, " ", Show(part));
    return absl::StrCat(text, " lr*", apply->lr_scale, " average*", apply->average_rate, " -> ",
                        ToString(apply->version));
  }
  if (const auto* drop = std::get_if<DropAction>(&action)) {
    return absl::StrCat("drop ", drop->push.sender.worker.value(), ":", drop->push.sequence.value());
  }
  if (const auto* answer = std::get_if<AnswerAction>(&action)) {
    return absl::StrCat(answer->repeated ? "again " : "answer ", answer->sender.worker.value(), ":",
                        Show(answer->answer));
  }
  if (const auto* serve = std::get_if<ServeAction>(&action)) {
    return absl::StrCat("serve ", serve->sender.worker.value(), " pull ", serve->id.value());
  }
  if (const auto* refuse = std::get_if<RefuseAction>(&action)) {
    return absl::StrCat("refuse ", refuse->sender.worker.value(), ": ", refuse->status.ToString(), " expected ",
                        refuse->expected.value());
  }
  if (const auto* wait = std::get_if<WaitingAction>(&action)) return Show(*wait);
  const auto& lost = std::get<LostAction>(action);
  return absl::StrCat("lost ", lost.sender.worker.value(), " (", lost.from.value(), ", ", lost.to.value(), "]");
}

class EngineTest : public testing::Test {
 protected:
  static EngineConfig Config(Mode mode, uint64_t bound = 1) {
    EngineConfig config;
    config.mode = mode;
    config.staleness_max = bound;
    config.window_max = 2;
    config.samples_nominal = 4;
    return config;
  }

  void Start(const EngineConfig& config, std::vector<Sender> members) {
    engine_.emplace(config);
    Members(1, std::move(members));
  }
  void Start(Mode mode, std::vector<Sender> members, uint64_t bound = 1) {
    Start(Config(mode, bound), std::move(members));
  }

  std::vector<std::string> Members(uint64_t epoch, std::vector<Sender> members) {
    std::vector<MemberEntry> entries;
    for (const Sender& sender : members) entries.push_back({sender, absl::StrCat("worker-", sender.worker.value())});
    Actions actions;
    EXPECT_TRUE(engine_->SetMembers({Epoch(epoch), entries}, actions).ok());
    return Lines(actions);
  }
  std::vector<std::string> Push(const Sender& sender, uint64_t sequence, Version base, uint64_t samples = 4) {
    Actions actions;
    engine_->Push({sender, Sequence(sequence), base, samples, now_}, actions);
    return Lines(actions);
  }
  std::vector<std::string> Push(const Sender& sender, uint64_t sequence) {
    return Push(sender, sequence, engine_->version());
  }
  std::vector<std::string> Pull(const Sender& sender, uint64_t id, uint64_t clock) {
    Actions actions;
    engine_->Pull({sender, PullId(id), Clock64(clock)}, now_, actions);
    return Lines(actions);
  }
  std::vector<std::string> Hello(const Sender& sender, uint64_t first_clock, uint64_t last_answered) {
    Actions actions;
    status_ = engine_->Hello({sender, Clock64(first_clock), Sequence(last_answered)}, actions);
    return Lines(actions);
  }
  // Lets `time` pass and returns the engine's actions.
  std::vector<std::string> After(absl::Duration time) {
    now_ += time;
    Actions actions;
    engine_->Tick(now_, actions);
    return Lines(actions);
  }
  static std::vector<std::string> Lines(const Actions& actions) {
    std::vector<std::string> lines;
    for (const Action& action : actions) lines.push_back(Show(action));
    return lines;
  }

  std::optional<Engine> engine_;
  absl::Time now_ = absl::UnixEpoch();
  absl::Status status_;
};

}  // namespace slackline::ps
