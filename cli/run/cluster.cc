#include "cli/run/cluster.h"

#include <algorithm>
#include <cmath>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cli/base/sibling.h"
#include "cli/run/node_scripts.h"
#include "cli/run/script.h"
#include "cli/run/seat.h"
#include "common/job/job_kinds.h"
#include "common/job/job_timeouts.h"
#include "common/time/clock.h"

namespace slackline::cli {
namespace {

// Returns how a process ended, with its last line if that is an error: "exit code 1: ValueError: ...".
std::string WhyEnded(const Crew::End& end) {
  const std::string how = end.how.Describe();
  absl::string_view line = absl::StripAsciiWhitespace(end.last_words);
  line = line.substr(line.rfind('\n') + 1);
  // A killed process had no time to say why it ends. Lines of our own programs below the level of an error give no
  // reason.
  if (end.how.by_signal || absl::StrContains(line, " info: ") || absl::StrContains(line, " warning: ")) return how;
  const absl::string_view error = " error: ";
  if (const size_t at = line.find(error); at != line.npos) line = line.substr(at + error.size());
  return line.empty() ? how : absl::StrCat(how, ": ", absl::StripAsciiWhitespace(line));
}

namespace fs = std::filesystem;

// Between two looks for the address file; the end of a child wakes us at once.
constexpr absl::Duration kAddressPoll = absl::Milliseconds(10);
// Before one that has died young more than once is started again.
constexpr char kScheduler[] = "scheduler";
constexpr absl::Duration kBackOff = absl::Milliseconds(100);
constexpr absl::Duration kBackOffMax = absl::Seconds(10);
constexpr absl::Duration kYoung = absl::Seconds(10);
// Becomes another program, with more in its environment.
constexpr char kEnv[] = "/usr/bin/env";
constexpr absl::Duration kNewestStatusTimeout = absl::Seconds(2);

constexpr char kSchedulerProgram[] = "slackline-scheduler", kServerProgram[] = "slackline-ps";

// Returns the names of the programs that a run of the job needs.
std::vector<std::string> ProgramsOf(const job::Job& job) {
  std::vector<std::string> programs = {kSchedulerProgram, kServerProgram};
  if (!RunsScripts(job)) programs.push_back(kWorkerProgram);
  return programs;
}

// Or is the backup of one that has.
bool HasShards(const wire::GetStatusReply& status, const std::string& server) {
  return std::any_of(status.members().begin(), status.members().end(), [&](const wire::MemberStatus& member) {
    return member.role() == wire::MEMBER_ROLE_SERVER && member.name() == server && member.state() != "joining";
  });
}

}  // namespace

absl::StatusOr<Programs> Programs::BesideThisProgram(const job::Job& job) {
  const absl::StatusOr<fs::path> folder = FolderWith(ProgramsOf(job));
  if (!folder.ok()) return folder.status();
  return Programs{*folder / kSchedulerProgram, *folder / kServerProgram, *folder / kWorkerProgram};
}

absl::Status Programs::CheckAll(const job::Job& job) {
  std::vector<std::string> all = ProgramsOf(job);
  all.push_back(kSimulator);
  return FolderWith(all).status();
}

Cluster::Cluster(job::Job job, Programs programs, std::shared_ptr<const rpc::Protection> protection,
                 const RunFolder& folder, std::string checkpoint, Share share, SignalQueue& signals)
    : job_(std::move(job)),
      programs_(std::move(programs)),
      protection_(std::move(protection)),
      folder_(folder),
      checkpoint_(std::move(checkpoint)),
      share_(std::move(share)),
      place_(std::filesystem::absolute(folder.address_file())),
      signals_(signals),
      crew_(folder, signals) {}

uint32_t ServerProcesses(const job::Job& job) {
  const uint32_t servers = job.cluster().servers();
  return job.durability().mode() == job::Durability::REPLICATED ? 2 * servers : servers;
}

std::vector<std::string> ListenAt(const std::string& host, const job::Network& network) {
  std::vector<std::string> arguments;
  if (!network.interface().empty()) arguments = {"--set", "network.interface="};
  if (network.listen() == job::Network().listen()) {
    arguments.insert(arguments.end(), {"--set", absl::StrCat("network.listen=", host)});
  }
  if (network.advertise().empty()) {
    arguments.insert(arguments.end(), {"--set", absl::StrCat("network.advertise=", host)});
  }
  return arguments;
}

bool BindsCores(const job::Worker& worker) {
  return worker.cores_size() > 0 || std::any_of(worker.groups().begin(), worker.groups().end(),
                                                [](const job::WorkerGroup& group) { return group.cores_size() > 0; });
}

Share WholeJob(const job::Job& job) {
  Share all;
  for (uint32_t number = 1; number <= ServerProcesses(job); ++number)
    all.servers.push_back(absl::StrCat("ps-", number));
  for (uint32_t number = 1; number <= job.cluster().workers(); ++number)
    all.workers.push_back(absl::StrCat("worker-", number));
  const auto groups = static_cast<uint32_t>(job.worker().groups_size());
  for (uint32_t i = 0; groups > 0 && i < all.workers.size(); ++i) all.groups[all.workers[i]] = i % groups;
  return all;
}

absl::Status Cluster::Start() {
  if (share_.scheduler) {
    if (absl::Status status = StartScheduler(); !status.ok()) return status;
  }
  absl::StatusOr<std::string> address = WaitForAddress();
  if (!address.ok()) return address.status();
  Follow(*address);
  for (const std::string& name : share_.servers) {
    if (absl::Status status = StartServer(name); !status.ok()) return status;
  }
  for (const std::string& name : share_.workers) {
    if (absl::Status status = StartWorker(name); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void Cluster::Follow(const std::string& address) {
  if (address == address_) return;
  address_ = address;
  client_ = std::make_unique<SchedulerClient>(address_, protection_);
}

absl::Status Cluster::StartScheduler() {
  silence_.Begin();
  restarts_[kScheduler].role = security::Role::kScheduler;
  restarts_[kScheduler].started = SteadyTime().Now();
  std::vector<std::string> command = {programs_.scheduler, folder_.job_file(), "--run-folder", folder_.path()};
  if (client_ != nullptr) {
    command.push_back("--resume");
  } else if (!checkpoint_.empty()) {
    command.insert(command.end(), {"--from-checkpoint", checkpoint_});
  }
  command.insert(command.end(), share_.scheduler_arguments.begin(), share_.scheduler_arguments.end());
  return crew_.Start(security::Role::kScheduler, kScheduler, std::move(command));
}

absl::Status Cluster::StartServer(const std::string& name) {
  restarts_[name].role = security::Role::kServer;
  restarts_[name].started = SteadyTime().Now();
  // One port can serve one process: the one in the job file is the scheduler's.
  std::vector<std::string> command = {programs_.server, folder_.job_file(),      "--scheduler", place_, "--name", name,
                                      "--set",          "network.metrics_port=0"};
  command.insert(command.end(), share_.server_arguments.begin(), share_.server_arguments.end());
  return crew_.Start(security::Role::kServer, name, std::move(command));
}

absl::Status Cluster::StartWorker(const std::string& name) {
  restarts_[name].role = security::Role::kWorker;
  restarts_[name].started = SteadyTime().Now();
  restarts_[name].there = 0;
  if (!share_.script.empty()) return crew_.Start(security::Role::kWorker, name, ScriptCommand(name));
  std::vector<std::string> command = {programs_.worker, folder_.job_file(),      "--scheduler", place_, "--name", name,
                                      "--set",          "network.metrics_port=0"};
  if (const auto group = share_.groups.find(name); group != share_.groups.end()) {
    command.insert(command.end(), {"--group", absl::StrCat(group->second)});
  }
  if (BindsCores(job_.worker())) {
    const auto seat = std::find(share_.workers.begin(), share_.workers.end(), name) - share_.workers.begin();
    command.insert(command.end(), {"--seat", absl::StrCat(seat, "/", share_.workers.size())});
  }
  command.insert(command.end(), share_.worker_arguments.begin(), share_.worker_arguments.end());
  return crew_.Start(security::Role::kWorker, name, std::move(command));
}

std::vector<std::string> Cluster::ScriptCommand(const std::string& name) const {
  // Its log is to have what it prints as it prints it.
  std::vector<std::string> command = {kEnv, absl::StrCat("SLACKLINE_JOB=", fs::absolute(folder_.job_file()).string()),
                                      absl::StrCat("SLACKLINE_SCHEDULER=", place_),
                                      absl::StrCat("SLACKLINE_WORKER=", name), "PYTHONUNBUFFERED=1"};
  const std::vector<std::string> environment = EnvironmentOf(share_.worker_arguments);
  command.insert(command.end(), environment.begin(), environment.end());
  const uint32_t seats = job_.worker().per_node();
  if (job_.worker().node_group()) {
    command.insert(command.end(), {programs_.scheduler.parent_path() / "slackline", kNodeScripts, absl::StrCat(seats)});
  } else if (seats > 1) {
    const auto number = std::find(share_.workers.begin(), share_.workers.end(), name) - share_.workers.begin();
    const std::vector<std::string> seat =
        EnvironmentOfSeat(ThisMachine(), static_cast<uint32_t>(number) % seats, seats);
    command.insert(command.end(), seat.begin(), seat.end());
  }
  command.insert(command.end(), share_.script.begin(), share_.script.end());
  return command;
}

absl::Status Cluster::TakeServer(const std::string& name) {
  share_.servers.push_back(name);
  return StartServer(name);
}

void Cluster::GiveUpServer(const std::string& name) {
  std::erase(share_.servers, name);
  restarts_.erase(name);
  crew_.Kill(name);
}

bool Cluster::IsMine(const std::string& server) const {
  return std::find(share_.servers.begin(), share_.servers.end(), server) != share_.servers.end();
}

absl::StatusOr<std::string> Cluster::WaitForAddress() {
  const absl::Duration patience = absl::Milliseconds(job_.timeouts().startup_ms());
  const absl::Time deadline = SteadyTime().Now() + patience;
  while (SteadyTime().Now() < deadline) {
    if (absl::StatusOr<std::string> address = folder_.ReadAddress(); address.ok()) return address;
    for (const Crew::End& end : crew_.Reap()) return absl::AbortedError(end.Describe());
    if (share_.waiting) share_.waiting();
    const std::optional<int> signal = signals_.Wait(kAddressPoll);
    if (signal && IsStop(*signal)) return absl::CancelledError("stopped");
  }
  return absl::DeadlineExceededError(absl::StrCat("waited ", absl::FormatDuration(patience),
                                                  " (timeouts.startup_ms) for the scheduler to write ",
                                                  folder_.address_file().string()));
}

Cluster::News Cluster::Watch(const wire::GetStatusReply& status) {
  if (HasEnded(status)) return WatchEnded(status);
  News news;
  KillGivenUpServers(status, news);
  KillLostWorkers(status, news);
  KillSilentScheduler(status, news);
  for (const Crew::End& end : crew_.Reap()) {
    if (end.role == security::Role::kWorker) {
      WorkerEnded(end, status, news);
    } else if (end.role == security::Role::kServer) {
      ServerEnded(end, status, news);
    } else {
      SchedulerEnded(end, status, news);
    }
  }
  ReportWorkerEnds(status);
  StartDue(news);
  if (share_.whole) StartAddedServers(status, news);
  if (const absl::StatusOr<std::string> address = folder_.ReadAddress(); address.ok()) Follow(*address);
  const bool somebody_comes = std::any_of(restarts_.begin(), restarts_.end(), [](const auto& entry) {
    return entry.second.role == security::Role::kWorker && entry.second.due != absl::InfiniteFuture();
  });
  if (news.trouble.empty() && share_.whole && !somebody_comes && crew_.Watched(security::Role::kWorker) == 0) {
    news.trouble = absl::StrCat("no worker is left", worker_end_.empty() ? "" : "; ", worker_end_);
    news.maybe_done = !worker_died_;
  }
  return news;
}

Cluster::News Cluster::WatchEnded(const wire::GetStatusReply& status) {
  News news;
  KillSilentScheduler(status, news);
  for (const Crew::End& end : crew_.Reap()) {
    // Its exit code only says how the job ended. A crash has a signal.
    if (end.role == security::Role::kScheduler && end.how.by_signal) SchedulerEnded(end, status, news);
    // A script that fails in its own work, after the job.
    const bool of_script =
        end.role == security::Role::kWorker && !share_.script.empty() && status.state() == wire::JOB_DONE;
    if (of_script && !end.how.ok()) news.lines.push_back(end.Describe());
  }
  // Servers and workers that wait for another start belong to a job that is over.
  std::erase_if(restarts_, [](const auto& entry) { return entry.second.role != security::Role::kScheduler; });
  StartDue(news);
  if (const absl::StatusOr<std::string> address = folder_.ReadAddress(); address.ok()) Follow(*address);
  return news;
}

void Cluster::ReportWorkerEnds(const wire::GetStatusReply& status) {
  // The first status says which job it is.
  if (status.job() == 0) return;
  for (const WorkerEnd& end : std::exchange(worker_ends_, {})) {
    client_->ReportExit(status.job(), wire::MEMBER_ROLE_WORKER, end.name, end.how, end.announced).IgnoreError();
  }
}

void Cluster::Heard(bool scheduler_answered) { silence_.Look(scheduler_answered, SteadyTime().Now()); }

bool Cluster::SchedulerRecovers(const wire::GetStatusReply& status) const {
  // One that has never answered has saved nothing either.
  return status.job() != 0 && job_.durability().mode() != job::Durability::NONE &&
         scheduler_restarts_ < job_.cluster().scheduler_restarts_max();
}

void Cluster::KillSilentScheduler(const wire::GetStatusReply& status, News& news) {
  const absl::Duration silent = silence_.lasted();
  if (silent < SchedulerSilenceMax(job_) || crew_.Running(security::Role::kScheduler) == 0 ||
      !SchedulerRecovers(status))
    return;
  silence_.Begin();
  news.lines.push_back(absl::StrCat("the scheduler is killed: it has not answered for ",
                                    absl::FormatDuration(absl::Trunc(silent, absl::Milliseconds(100))),
                                    ", allowed are ", absl::FormatDuration(SchedulerSilenceMax(job_))));
  crew_.Kill(kScheduler);
}

bool Cluster::scheduler_runs() {
  if (!share_.scheduler || crew_.Running(security::Role::kScheduler) > 0) return true;
  const auto restarts = restarts_.find(kScheduler);
  return restarts != restarts_.end() && restarts->second.due != absl::InfiniteFuture();
}

void Cluster::SchedulerEnded(const Crew::End& end, const wire::GetStatusReply& status, News& news) {
  if (!end.how.ok() && SchedulerRecovers(status)) {
    ++scheduler_restarts_;
    news.lines.push_back(end.Describe());
    restarts_[end.name].due = NextStart(end.name);
    return;
  }
  if (!news.trouble.empty()) return;
  news.trouble = end.Describe();
  news.maybe_done = end.how.ok();
}

void Cluster::ServerEnded(const Crew::End& end, const wire::GetStatusReply& status, News& news) {
  // It was given to another machine.
  if (!IsMine(end.name)) return;
  absl::StatusOr<wire::GetStatusReply> newest = status;
  // Somebody may have told one server to stop, for another machine or another version of it.
  if (crew_.Running(security::Role::kScheduler) > 0 && (!end.how.ok() || status.state() == wire::JOB_TRAINING)) {
    client_->ReportExit(status.job(), wire::MEMBER_ROLE_SERVER, end.name, end.how.Describe(), /*announced=*/true)
        .IgnoreError();
    // Training may have begun since, or the job may have failed by this.
    newest = client_->GetStatus(kNewestStatusTimeout);
    if (!newest.ok()) newest = status;
  }
  for (const wire::MemberStatus& member : newest->members()) {
    const bool left = member.state() == "left" || (end.how.ok() && member.state() == "draining");
    if (member.role() != wire::MEMBER_ROLE_SERVER || member.name() != end.name || !left) continue;
    news.lines.push_back(absl::StrCat(end.name, " has left: it was drained"));
    return;
  }
  const bool replicated = job_.durability().mode() == job::Durability::REPLICATED;
  if (newest->state() == wire::JOB_TRAINING && !replicated && !HasShards(*newest, end.name)) {
    return IdleServerEnded(end, *newest, news);
  }
  const bool recoverable = newest->state() == wire::JOB_TRAINING && job_.durability().mode() != job::Durability::NONE;
  const uint32_t most = job_.cluster().server_restarts_max();
  if (!recoverable || server_restarts_ >= most) {
    if (recoverable && replicated) {
      // Another has its place, or the one that it followed goes on alone.
      news.lines.push_back(absl::StrCat(end.Describe(), "\n", end.name, " is not started again: ", most,
                                        " restarts are used up (cluster.server_restarts_max)"));
      return;
    }
    if (!news.trouble.empty()) return;
    news.trouble = end.Describe();
    if (recoverable) {
      absl::StrAppend(&news.trouble, "\n", end.name, " is not started again: ", most,
                      " restarts are used up (cluster.server_restarts_max)");
    }
    news.maybe_done = end.how.ok();
    return;
  }
  StartAgainSoon(end, status);
  news.lines.push_back(end.Describe());
}

void Cluster::IdleServerEnded(const Crew::End& end, const wire::GetStatusReply& status, News& news) {
  news.lines.push_back(end.Describe());
  // The run goes on as it is; another process may have the place that this one was for.
  // Its restarts are its own: what never had shards must not use up those of servers that have.
  uint32_t& restarts = idle_restarts_[end.name];
  if (status.servers_to_come() > 0 && restarts < job_.cluster().server_restarts_max()) {
    ++restarts;
    StartAgainSoon(end, status);
    --server_restarts_;
    return;
  }
  news.lines.push_back(absl::StrCat(end.name, " had no shards, and is not started again"));
}

absl::Time Cluster::NextStart(const std::string& name) {
  Restarts& restarts = restarts_[name];
  const absl::Time now = SteadyTime().Now();
  restarts.count = now - restarts.started < kYoung ? restarts.count + 1 : 0;
  // One that dies again and again is given time.
  if (restarts.count <= 1) return now;
  return now + std::min(kBackOffMax, kBackOff * std::pow(2, restarts.count - 1));
}

void Cluster::StartAgainSoon(const Crew::End& end, const wire::GetStatusReply& status) {
  ++server_restarts_;
  Restarts& restarts = restarts_[end.name];
  restarts.due = NextStart(end.name);
  NoteIncarnation(end.name, wire::MEMBER_ROLE_SERVER, status);
}

void Cluster::NoteIncarnation(const std::string& name, wire::MemberRole role, const wire::GetStatusReply& status) {
  Restarts& restarts = restarts_[name];
  for (const wire::MemberStatus& member : status.members()) {
    if (member.role() == role && member.name() == name) {
      restarts.incarnation = std::max(restarts.incarnation, member.incarnation());
    }
  }
}

void Cluster::KillGivenUpServers(const wire::GetStatusReply& status, News& news) {
  if (status.state() != wire::JOB_TRAINING) return;
  for (const wire::MemberStatus& member : status.members()) {
    if (member.role() != wire::MEMBER_ROLE_SERVER || member.state() != "dead" || !IsMine(member.name())) continue;
    Restarts& restarts = restarts_[member.name()];
    if (member.incarnation() <= restarts.incarnation) continue;
    restarts.incarnation = member.incarnation();
    news.lines.push_back(
        absl::StrCat(member.name(), " is killed: the scheduler has given it up (", member.reason(), ")"));
    crew_.Kill(member.name());
  }
}

void Cluster::KillLostWorkers(const wire::GetStatusReply& status, News& news) {
  // While the scheduler says nothing, the one that it has given up may be back.
  if (status.state() != wire::JOB_TRAINING || silence_.lasted() > absl::ZeroDuration()) return;
  for (const std::string& name : share_.workers) {
    const wire::MemberStatus* newest = nullptr;
    for (const wire::MemberStatus& member : status.members()) {
      if (member.role() != wire::MEMBER_ROLE_WORKER || member.name() != name) continue;
      if (newest == nullptr || member.incarnation() >= newest->incarnation()) newest = &member;
    }
    if (newest != nullptr) KillLostWorker(*newest, news);
  }
}

void Cluster::KillLostWorker(const wire::MemberStatus& worker, News& news) {
  Restarts& restarts = restarts_[worker.name()];
  const absl::Time now = SteadyTime().Now();
  // What is known of earlier processes of that name says nothing of this one.
  if (worker.incarnation() <= restarts.incarnation) return;
  if (worker.state() != "dead") {
    restarts.there = worker.incarnation();
    restarts.dead_since = absl::InfiniteFuture();
    return;
  }
  if (restarts.there != worker.incarnation()) return;
  restarts.dead_since = std::min(restarts.dead_since, now);
  const Timeouts timeouts = TimeoutsOf(job_);
  if (now - restarts.dead_since < timeouts.worker_dead()) return;
  restarts.incarnation = worker.incarnation();
  restarts.dead_since = absl::InfiniteFuture();
  const std::string why =
      absl::StrCat("the scheduler has given it up (", worker.reason(), "), and it has not come back within ",
                   absl::FormatDuration(timeouts.worker_dead()));
  const uint32_t most = job_.cluster().worker_restarts_max();
  if (worker_restarts_ >= most) {
    news.lines.push_back(absl::StrCat(worker.name(), " is not replaced though ", why, ": ", most,
                                      " restarts are allowed (cluster.worker_restarts_max)"));
    return;
  }
  news.lines.push_back(absl::StrCat(worker.name(), " is killed: ", why));
  crew_.Kill(worker.name());
}

void Cluster::StartDue(News& news) {
  for (auto& [name, restarts] : restarts_) {
    if (SteadyTime().Now() < restarts.due) continue;
    restarts.due = absl::InfiniteFuture();
    const job::Cluster& cluster = job_.cluster();
    absl::Status status;
    uint32_t number = 0, most = 0;
    switch (restarts.role) {
      case security::Role::kScheduler:
        std::tie(status, number, most) =
            std::tuple(StartScheduler(), scheduler_restarts_, cluster.scheduler_restarts_max());
        break;
      case security::Role::kServer:
        std::tie(status, number, most) = std::tuple(StartServer(name), server_restarts_, cluster.server_restarts_max());
        break;
      case security::Role::kWorker:
        std::tie(status, number, most) = std::tuple(StartWorker(name), worker_restarts_, cluster.worker_restarts_max());
        break;
      case security::Role::kOperator:  // not a process of the run
        break;
    }
    const std::string who = restarts.role == security::Role::kScheduler ? "the scheduler" : name;
    news.lines.push_back(status.ok() ? absl::StrCat(who, " is started again (restart ", number, " of ", most,
                                                    ", cluster.", security::RoleName(restarts.role), "_restarts_max)")
                                     : absl::StrCat(who, " cannot be started again: ", status.message()));
    if (!status.ok() && restarts.role == security::Role::kScheduler && news.trouble.empty())
      news.trouble = news.lines.back();
  }
}

void Cluster::StartAddedServers(const wire::GetStatusReply& status, News& news) {
  for (; servers_added_ < status.servers_added() && status.state() == wire::JOB_TRAINING; ++servers_added_) {
    const std::string name = absl::StrCat("ps-", ServerProcesses(job_) + servers_added_ + 1);
    const absl::Status started = TakeServer(name);
    news.lines.push_back(started.ok() ? absl::StrCat(name, " is started, to join the run")
                                      : absl::StrCat(name, " cannot be started: ", started.message()));
  }
}

void Cluster::WorkerEnded(const Crew::End& end, const wire::GetStatusReply& status, News& news) {
  // A worker that has left in good order is no member any more, and the scheduler ignores the report.
  worker_ends_.push_back({end.name,
                          absl::StrCat(end.how.Describe(), end.how.ok() ? ", without leaving the job first" : ""),
                          !end.how.ok()});
  NoteIncarnation(end.name, wire::MEMBER_ROLE_WORKER, status);
  worker_died_ = !end.how.ok();
  worker_end_ = worker_died_ ? absl::StrCat(end.name, " died: ", WhyEnded(end))
                             : absl::StrCat(end.name, " ended before the job was done");
  if (!worker_died_) return;
  news.lines.push_back(end.Describe());
  if (worker_restarts_ >= job_.cluster().worker_restarts_max()) return;
  ++worker_restarts_;
  restarts_[end.name].due = NextStart(end.name);
}

}  // namespace slackline::cli
