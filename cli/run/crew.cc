#include "cli/run/crew.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/time/clock.h"

namespace slackline::cli {

namespace {

// How long workers and servers may take to leave once the scheduler is gone, who may have told them last.
constexpr absl::Duration kAloneMax = absl::Seconds(1);
// A script that ends within this after the job is not worth a word.
constexpr absl::Duration kScriptsBrief = absl::Seconds(2);

}  // namespace

std::string Crew::End::Describe() const {
  return absl::StrCat(name, " (process ", pid, ") died: ", how.Describe(),
                      last_words.empty() ? "; it printed nothing"
                                         : absl::StrCat("; its last output:\n    ",
                                                        absl::StrReplaceAll(last_words, {{"\n", "\n    "}})));
}

absl::Status Crew::Start(security::Role role, const std::string& name, std::vector<std::string> command) {
  absl::StatusOr<Process> process = Process::Start({name, std::move(command), folder_.log(name)});
  if (!process.ok()) return process.status();
  const auto known =
      std::find_if(members_.begin(), members_.end(), [&](const Member& m) { return m.process.name() == name; });
  if (known == members_.end()) {
    members_.push_back({role, 0, false, *std::move(process)});
  } else {
    known->process = *std::move(process);
    known->reaped = false;
    ++known->restarts;
  }
  Record();
  return absl::OkStatus();
}

std::vector<Crew::End> Crew::Reap() {
  std::vector<End> ends;
  for (Member& member : members_) {
    const std::optional<ProcessEnd> how = member.process.Poll();
    if (member.reaped || !how) continue;
    member.reaped = true;
    ends.push_back({member.role, member.process.name(), member.process.pid(), *how, member.process.LastWords()});
  }
  if (!ends.empty()) Record();
  return ends;
}

void Crew::Kill(const std::string& name) {
  for (Member& member : members_) {
    if (member.process.name() == name) member.process.Signal(SIGKILL);
  }
}

size_t Crew::Watched(security::Role role) const {
  return static_cast<size_t>(std::count_if(members_.begin(), members_.end(), [role](const Member& member) {
    return member.role == role && !member.reaped;
  }));
}

size_t Crew::Running(security::Role role) {
  return static_cast<size_t>(std::count_if(members_.begin(), members_.end(), [role](Member& member) {
    return member.role == role && !member.process.Poll();
  }));
}

std::string Crew::Crash(security::Role role) {
  for (Member& member : members_) {
    const std::optional<ProcessEnd> how = member.process.Poll();
    if (member.role == role && how && !how->ok()) return how->Describe();
  }
  return "";
}

size_t Crew::Running() {
  return Running(security::Role::kScheduler) + Running(security::Role::kServer) + Running(security::Role::kWorker);
}

std::vector<std::string> Crew::Stop(const StopDeadlines& deadlines) {
  std::vector<std::string> said;
  signals_left_ = deadlines.impatient_at;
  if (deadlines.scripts == absl::ZeroDuration()) {
    WaitForEnd({security::Role::kWorker, security::Role::kServer}, deadlines.leave, Told::kByScheduler);
  } else {
    WaitForEnd({security::Role::kServer}, deadlines.leave, Told::kByScheduler);
    said = WaitForScripts(deadlines);
  }
  // In the order in which they need one another.
  for (const security::Role role : {security::Role::kWorker, security::Role::kServer, security::Role::kScheduler}) {
    SignalAll(role, deadlines.signal);
    WaitForEnd({role}, deadlines.terminate, Told::kBySignal);
  }
  for (Member& member : members_) {
    if (member.process.Poll()) continue;
    said.push_back(absl::StrCat(member.process.name(), " (process ", member.process.pid(), ") did not leave ",
                                signals_left_ <= 0 ? "at once" : "in time", " and was killed"));
    member.process.Signal(SIGKILL);
    member.process.WaitFor(absl::InfiniteDuration());
  }
  Reap();
  return said;
}

void Crew::WaitForEnd(std::initializer_list<security::Role> roles, absl::Duration timeout, Told told) {
  absl::Time deadline = SteadyTime().Now() + timeout;
  const auto runs = [this](security::Role role) { return Running(role) > 0; };
  while (std::any_of(roles.begin(), roles.end(), runs)) {
    if (told == Told::kByScheduler && Running(security::Role::kScheduler) == 0)
      deadline = std::min(deadline, SteadyTime().Now() + kAloneMax);
    const absl::Duration left = deadline - SteadyTime().Now();
    if (signals_left_ <= 0 || left <= absl::ZeroDuration()) return;
    const std::optional<int> signal = signals_.Wait(left);
    if (signal && IsStop(*signal)) --signals_left_;
  }
}

std::vector<std::string> Crew::WaitForScripts(const StopDeadlines& deadlines) {
  bool stopped = false;
  const auto wait = [&](absl::Duration timeout) {
    const absl::Time deadline = SteadyTime().Now() + timeout;
    while (Running(security::Role::kWorker) > 0 && !stopped && SteadyTime().Now() < deadline) {
      const std::optional<int> signal = signals_.Wait(deadline - SteadyTime().Now());
      stopped = signal && IsStop(*signal);
    }
  };
  const auto running = [this] {
    std::vector<std::string> names;
    for (Member& member : members_) {
      if (member.role == security::Role::kWorker && !member.process.Poll()) names.push_back(member.process.name());
    }
    return absl::StrJoin(names, ", ");
  };
  wait(kScriptsBrief);
  if (const std::string names = running(); !names.empty() && !stopped) deadlines.on_scripts(names);
  wait(deadlines.scripts);
  std::vector<std::string> said;
  for (const End& end : Reap()) {
    if (end.role == security::Role::kWorker && !end.how.ok()) said.push_back(end.Describe());
  }
  if (const std::string names = running(); !names.empty()) {
    said.push_back(absl::StrCat("scripts are ended before their own work was done: ", names));
  }
  return said;
}

void Crew::SignalAll(security::Role role, int signal) {
  for (Member& member : members_) {
    if (member.role == role) member.process.Signal(signal);
  }
}

void Crew::Record() {
  std::vector<ProcessRecord> records;
  for (Member& member : members_) {
    const std::optional<ProcessEnd> end = member.process.Poll();
    records.push_back({member.process.name(), security::RoleName(member.role), member.process.pid(), member.restarts,
                       end ? end->Describe() : "running"});
  }
  // For people and tools; the run does not depend on it.
  folder_.WriteProcesses(records).IgnoreError();
}

}  // namespace slackline::cli
