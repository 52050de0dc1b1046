#include "cli/cluster.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

// Between two looks for the address file; the end of a child wakes us at once.
constexpr absl::Duration kAddressPoll = absl::Milliseconds(10);
// Before a server that has died more than once is started again.
constexpr absl::Duration kBackOff = absl::Milliseconds(100);
constexpr absl::Duration kBackOffMax = absl::Seconds(10);
constexpr absl::Duration kNewestStatusTimeout = absl::Seconds(2);

// Or is the backup of one that has.
bool HasShards(const wire::GetStatusReply& status, const std::string& server) {
  return std::any_of(status.members().begin(), status.members().end(), [&](const wire::MemberStatus& member) {
    return member.role() == wire::MEMBER_ROLE_SERVER && member.name() == server && member.state() != "joining";
  });
}

}  // namespace

absl::StatusOr<Programs> Programs::BesideThisProgram() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return absl::NotFoundError("cannot tell where this program is: /proc/self/exe is not readable");
  const fs::path folder = self.parent_path();
  const Programs programs{folder / "slackline-scheduler", folder / "slackline-ps", folder / "slackline-worker"};
  std::vector<std::string> missing;
  for (const fs::path& program : {programs.scheduler, programs.server, programs.worker}) {
    if (::access(program.c_str(), X_OK) != 0) missing.push_back(program.filename());
  }
  if (missing.empty()) return programs;
  return absl::NotFoundError(absl::StrCat("found no ", absl::StrJoin(missing, ", "), " in ", folder.string(),
                                          "; build or install all programs of Slackline into one folder"));
}

Cluster::Cluster(job::Job job, Programs programs, std::shared_ptr<const rpc::Protection> protection,
                 const RunFolder& folder, std::string checkpoint, SignalQueue& signals)
    : job_(std::move(job)),
      programs_(std::move(programs)),
      protection_(std::move(protection)),
      folder_(folder),
      checkpoint_(std::move(checkpoint)),
      place_(std::filesystem::absolute(folder.address_file())),
      signals_(signals),
      crew_(folder, signals) {}

uint32_t ServerProcesses(const job::Job& job) {
  const uint32_t servers = job.cluster().servers();
  return job.durability().mode() == job::Durability::REPLICATED ? 2 * servers : servers;
}

absl::Status Cluster::Start() {
  if (absl::Status status = StartScheduler(); !status.ok()) return status;
  absl::StatusOr<std::string> address = WaitForAddress();
  if (!address.ok()) return address.status();
  Follow(*address);
  for (uint32_t number = 1; number <= ServerProcesses(job_); ++number) {
    if (absl::Status status = StartServer(absl::StrCat("ps-", number)); !status.ok()) return status;
  }
  for (uint32_t number = 1; number <= job_.cluster().workers(); ++number) {
    if (absl::Status status = StartWorker(absl::StrCat("worker-", number)); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void Cluster::Follow(const std::string& address) {
  if (address == address_) return;
  address_ = address;
  client_ = std::make_unique<SchedulerClient>(address_, protection_);
}

absl::Status Cluster::StartScheduler() {
  std::vector<std::string> command = {programs_.scheduler, folder_.job_file(), "--run-folder", folder_.path()};
  if (client_ != nullptr) {
    command.push_back("--resume");
  } else if (!checkpoint_.empty()) {
    command.insert(command.end(), {"--from-checkpoint", checkpoint_});
  }
  return crew_.Start(Role::kScheduler, "scheduler", std::move(command));
}

absl::Status Cluster::StartServer(const std::string& name) {
  // One port can serve one process: the one in the job file is the scheduler's.
  return crew_.Start(
      Role::kServer, name,
      {programs_.server, folder_.job_file(), "--scheduler", place_, "--name", name, "--set", "network.metrics_port=0"});
}

absl::Status Cluster::StartWorker(const std::string& name) {
  return crew_.Start(
      Role::kWorker, name,
      {programs_.worker, folder_.job_file(), "--scheduler", place_, "--name", name, "--set", "network.metrics_port=0"});
}

absl::StatusOr<std::string> Cluster::WaitForAddress() {
  const absl::Duration patience = absl::Milliseconds(job_.timeouts().startup_ms());
  const absl::Time deadline = absl::Now() + patience;
  while (absl::Now() < deadline) {
    if (absl::StatusOr<std::string> address = folder_.ReadAddress(); address.ok()) return address;
    for (const Crew::End& end : crew_.Reap()) return absl::AbortedError(end.Describe());
    const std::optional<int> signal = signals_.Wait(kAddressPoll);
    if (signal && IsStop(*signal)) return absl::CancelledError("stopped");
  }
  return absl::DeadlineExceededError(absl::StrCat("waited ", absl::FormatDuration(patience),
                                                  " (timeouts.startup_ms) for the scheduler to write ",
                                                  folder_.address_file().string()));
}

Cluster::News Cluster::Watch(const wire::GetStatusReply& status) {
  News news;
  KillGivenUpServers(status, news);
  for (const Crew::End& end : crew_.Reap()) {
    if (end.role == Role::kWorker) {
      WorkerEnded(end, status.job(), news);
    } else if (end.role == Role::kServer) {
      ServerEnded(end, status, news);
    } else {
      SchedulerEnded(end, status, news);
    }
  }
  StartDueServers(news);
  StartAddedServers(status, news);
  if (const absl::StatusOr<std::string> address = folder_.ReadAddress(); address.ok()) Follow(*address);
  if (news.trouble.empty() && crew_.Watched(Role::kWorker) == 0) {
    news.trouble = "no worker is left";
    news.maybe_done = !worker_died_;
  }
  return news;
}

void Cluster::SchedulerEnded(const Crew::End& end, const wire::GetStatusReply& status, News& news) {
  const uint32_t most = job_.cluster().scheduler_restarts_max();
  // One that has never answered has saved nothing either.
  const bool goes_on = status.state() == wire::JOB_TRAINING || status.state() == wire::JOB_STARTING;
  const bool recoverable = status.job() != 0 && goes_on && job_.durability().mode() != job::Durability::NONE;
  if (!end.how.ok() && recoverable && scheduler_restarts_ < most) {
    ++scheduler_restarts_;
    news.lines.push_back(end.Describe());
    const absl::Status started = StartScheduler();
    news.lines.push_back(started.ok() ? absl::StrCat("the scheduler is started again (restart ", scheduler_restarts_,
                                                     " of ", most, ", cluster.scheduler_restarts_max)")
                                      : absl::StrCat("it cannot be started again: ", started.message()));
    if (started.ok()) return;
  }
  if (!news.trouble.empty()) return;
  news.trouble = end.Describe();
  news.maybe_done = end.how.ok();
}

void Cluster::ServerEnded(const Crew::End& end, const wire::GetStatusReply& status, News& news) {
  absl::StatusOr<wire::GetStatusReply> newest = status;
  // Somebody may have told one server to stop, for another machine or another version of it.
  if (crew_.Running(Role::kScheduler) > 0 && (!end.how.ok() || status.state() == wire::JOB_TRAINING)) {
    client_->ReportExit(status.job(), wire::MEMBER_ROLE_SERVER, end.name, end.how.Describe()).IgnoreError();
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
  if (status.servers_to_come() > 0 && server_restarts_ < job_.cluster().server_restarts_max()) {
    return StartAgainSoon(end, status);
  }
  news.lines.push_back(absl::StrCat(end.name, " had no shards, and is not started again"));
}

void Cluster::StartAgainSoon(const Crew::End& end, const wire::GetStatusReply& status) {
  ++server_restarts_;
  Restarts& restarts = servers_[end.name];
  // One that dies again and again is given time.
  restarts.due = absl::Now() + (restarts.count == 0 ? absl::ZeroDuration()
                                                    : std::min(kBackOffMax, kBackOff * std::pow(2, restarts.count)));
  ++restarts.count;
  for (const wire::MemberStatus& member : status.members()) {
    if (member.role() == wire::MEMBER_ROLE_SERVER && member.name() == end.name) {
      restarts.incarnation = std::max(restarts.incarnation, member.incarnation());
    }
  }
}

void Cluster::KillGivenUpServers(const wire::GetStatusReply& status, News& news) {
  if (status.state() != wire::JOB_TRAINING) return;
  for (const wire::MemberStatus& member : status.members()) {
    if (member.role() != wire::MEMBER_ROLE_SERVER || member.state() != "dead") continue;
    Restarts& restarts = servers_[member.name()];
    if (member.incarnation() <= restarts.incarnation) continue;
    restarts.incarnation = member.incarnation();
    news.lines.push_back(
        absl::StrCat(member.name(), " is killed: the scheduler has given it up (", member.reason(), ")"));
    crew_.Kill(member.name());
  }
}

void Cluster::StartDueServers(News& news) {
  for (auto& [name, restarts] : servers_) {
    if (absl::Now() < restarts.due) continue;
    restarts.due = absl::InfiniteFuture();
    const absl::Status status = StartServer(name);
    news.lines.push_back(status.ok()
                             ? absl::StrCat(name, " is started again (restart ", server_restarts_, " of ",
                                            job_.cluster().server_restarts_max(), ", cluster.server_restarts_max)")
                             : absl::StrCat(name, " cannot be started again: ", status.message()));
  }
}

void Cluster::StartAddedServers(const wire::GetStatusReply& status, News& news) {
  for (; servers_added_ < status.servers_added() && status.state() == wire::JOB_TRAINING; ++servers_added_) {
    const std::string name = absl::StrCat("ps-", ServerProcesses(job_) + servers_added_ + 1);
    const absl::Status started = StartServer(name);
    news.lines.push_back(started.ok() ? absl::StrCat(name, " is started, to join the run")
                                      : absl::StrCat(name, " cannot be started: ", started.message()));
  }
}

void Cluster::WorkerEnded(const Crew::End& end, uint64_t job, News& news) {
  // A worker that was told to leave has not died.
  if (end.how.ok()) return;
  worker_died_ = true;
  news.lines.push_back(end.Describe());
  client_->ReportExit(job, wire::MEMBER_ROLE_WORKER, end.name, end.how.Describe()).IgnoreError();
  const uint32_t most = job_.cluster().worker_restarts_max();
  if (worker_restarts_ >= most) return;
  ++worker_restarts_;
  const absl::Status status = StartWorker(end.name);
  news.lines.push_back(status.ok() ? absl::StrCat(end.name, " is started again (restart ", worker_restarts_, " of ",
                                                  most, ", cluster.worker_restarts_max)")
                                   : absl::StrCat(end.name, " cannot be started again: ", status.message()));
}

}  // namespace slackline::cli
