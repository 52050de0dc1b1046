#include "cli/commands/service.h"

#include <pwd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/base/complain.h"
#include "cli/commands/shared_options.h"
#include "cli/commands/train.h"
#include "cli/run/script.h"
#include "cli/run/slurm_queue.h"
#include "cli/service/job_queue.h"
#include "cli/service/jobs_view.h"
#include "cli/service/queue_limits.h"
#include "cli/service/service_folder.h"
#include "common/job/command_options.h"
#include "common/job/job_file.h"
#include "common/text/counted.h"
#include "common/text/folder_name.h"
#include "common/text/help.h"
#include "common/text/utf8.h"
#include "common/time/clock.h"
#include "worker/settings/job_checks.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

const HelpText kSubmitHelp = {
    .example = "slackline submit job.yaml",
    .most_used = "--set --script --name",
    .groups = {{"Python scripts", "--script --python"},
               {"SLURM", "--on --sbatch"},
               {"Queue", "--name --owner --priority --memory --gpus --service"}},
    .text =
        "Checks the job as `slackline train` does, puts it into the queue, and prints its number. The job runs in the "
        "present folder. A copy of the job file is kept; data and scripts are not copied. The job file - is standard "
        "input.",
    .examples =
        "slackline submit job.yaml --set optimizer.lr=0.1 --name lr-0.1\n"
        "slackline submit job.yaml --script train.py -- --depth 18\n"
        "slackline submit job.yaml --priority 10 --gpus 2 --memory 16GB\n"
        "slackline submit job.yaml --on slurm --sbatch=--nodes=4 --sbatch=--time=48:00:00"};

const HelpText kJobsHelp = {
    .example = "slackline jobs",
    .text = "Shows all jobs that wait or run, and the newest of those that have ended. States: slackline help service.",
    .examples = "slackline jobs --json | jq '.[] | select(.state == \"failed\") | .reason'"};

const HelpText kLogsHelp = {
    .example = "slackline logs 7 --follow",
    .text = "Without --process, shows the output of the job itself: its progress, events and errors.",
    .examples = "slackline logs 7 --process worker-1"};

const HelpText kCancelHelp = {
    .example = "slackline cancel 7",
    .text =
        "Ends the job at once, without a last checkpoint, and waits for that. `slackline stop` saves the job first. "
        "`slackline resume` continues a cancelled job from its newest checkpoint.",
    .examples =
        "slackline cancel 7 8 9\n"
        "slackline cancel /srv/slackline/7"};

const HelpText kRemoveHelp = {
    .example = "slackline rm 7",
    .text = "Forgets jobs that have ended, and deletes their folders with weights, checkpoints and logs.",
    .examples = "slackline rm 7 8 9"};

constexpr absl::Duration kFollowEvery = absl::Milliseconds(300);
constexpr absl::Duration kJobPoll = absl::Milliseconds(200);
// A last checkpoint of a large model takes minutes.
constexpr absl::Duration kStoppedMax = absl::Minutes(15);
constexpr absl::Duration kCancelledMax = absl::Minutes(2);
// Bytes of a log that are shown without --all.
constexpr int64_t kTailBytes = int64_t{32} << 10;
constexpr char kLocal[] = "local", kSlurm[] = "slurm";

struct SubmitOptions {
  std::string job_file;
  std::vector<std::string> overrides;
  ScriptOptions script;
  std::string on = kLocal;
  std::vector<std::string> sbatch;
  // Working folder of the job; empty: the present one.
  std::string folder;
  std::string name;
  std::string owner;
  int32_t priority = 0;
  uint64_t memory_bytes = 0;
  uint32_t gpus = 0;
  std::string service;
};

std::string UserName() {
  const passwd* const user = ::getpwuid(::getuid());
  return user == nullptr ? absl::StrCat(::getuid()) : user->pw_name;
}

// Checks whether a job can be submitted to SLURM here. Logs why not. Returns the exit code, which is kExitDone if it
// can.
int CheckOnSlurm(const std::vector<std::string>& script, const job::Job& job, const std::vector<std::string>& sbatch) {
  if (!IsInPath("sbatch")) {
    return Complain(absl::NotFoundError(
        "--on slurm: found no sbatch in the folders of $PATH; allowed is --on slurm where SLURM is installed"));
  }
  absl::Status status = CheckWorkers(script, job);
  status.Update(CheckFollowed(sbatch));
  if (status.ok()) status = worker::CheckJob(job);
  return status.ok() ? kExitDone : ComplainOfWrongUse(status);
}

int Submit(SubmitOptions options) {
  std::error_code error;
  if (!options.folder.empty()) fs::current_path(options.folder, error);
  if (error) {
    return ComplainOfWrongUse(absl::NotFoundError(
        absl::StrCat("--chdir: found ", ValidText(options.folder), ": ", error.message(), "; allowed is a folder")));
  }
  const absl::StatusOr<std::vector<std::string>> script = CommandOf(options.script);
  if (!script.ok()) return ComplainOfWrongUse(script.status());
  if (absl::Status found = CheckInterpreter(*script); !found.ok()) return Complain(found);
  const absl::StatusOr<job::Job> read = ReadJobOfWorkers(*script, options.job_file, options.overrides);
  if (!read.ok()) return ComplainOfWrongUse(read.status());
  const bool on_slurm = options.on == kSlurm;
  if (!on_slurm && !options.sbatch.empty()) {
    return ComplainOfWrongUse(absl::InvalidArgumentError("found --sbatch; allowed is --sbatch with --on slurm"));
  }
  // In an allocation some defaults are others, and the data may be elsewhere.
  const job::Job job = on_slurm ? *read : Resolve(*read);
  const int code = on_slurm ? CheckOnSlurm(*script, job, options.sbatch) : CheckStart(*script, job);
  if (code != kExitDone) return code;
  const fs::path here = fs::current_path(error);
  if (error) return ComplainOfWrongUse(absl::NotFoundError("the present folder was removed; submit from another one"));
  const absl::StatusOr<JobServiceClient> service = JobServiceClient::Connect(options.service);
  if (!service.ok()) return Complain(service.status());
  wire::SubmitRequest request;
  request.set_name(options.name.empty() ? job.name() : options.name);
  request.set_owner(options.owner.empty() ? UserName() : options.owner);
  request.set_priority(options.priority);
  request.mutable_needs()->set_memory_bytes(options.memory_bytes);
  request.mutable_needs()->set_gpus(options.gpus);
  request.mutable_needs()->set_place(on_slurm ? wire::JOB_ON_SLURM : wire::JOB_ON_LOCAL);
  wire::JobLaunch& launch = *request.mutable_launch();
  launch.set_job_yaml(ToYaml(job));
  for (const std::string& word : *script) launch.add_script(word);
  launch.set_folder(here.string());
  for (const std::string& option : options.sbatch) launch.add_sbatch(option);
  // The job finds the programs and packages of this shell, as in batch systems.
  for (char** variable = ::environ; *variable != nullptr; ++variable) launch.add_environment(*variable);
  const absl::StatusOr<uint64_t> id = service->Submit(request);
  if (!id.ok()) return Complain(id.status());
  std::printf("%llu\n", static_cast<unsigned long long>(*id));
  return kExitDone;
}

// A service, and numbers of jobs of it.
struct JobsOfOne {
  std::string service;
  std::set<uint64_t> ids;
};

// Returns the jobs that these words name, each once.
//   kInvalidArgument  a word names no job, or they name jobs of several services
absl::StatusOr<JobsOfOne> ParseJobs(const std::vector<std::string>& words) {
  JobsOfOne jobs;
  for (const std::string& word : words) {
    const std::optional<NamedJob> job = JobOfTarget(word);
    if (!job) {
      return absl::InvalidArgumentError(absl::StrCat(
          "found '", word, "'; allowed is the number of a job, or SERVICE/NUMBER, and no file of this name"));
    }
    if (!jobs.ids.empty() && job->service != jobs.service) {
      return absl::InvalidArgumentError("found jobs of several services; allowed are those of one");
    }
    jobs.service = job->service;
    jobs.ids.insert(job->id);
  }
  return jobs;
}

struct JobsOptions {
  // The only job to list; empty: all.
  std::string job;
  std::string service;
  bool json = false;
  uint32_t ended = 20;
};

int ListJobs(const JobsOptions& options) {
  const absl::StatusOr<JobsOfOne> one =
      ParseJobs(options.job.empty() ? std::vector<std::string>() : std::vector{options.job});
  if (!one.ok()) return ComplainOfWrongUse(one.status());
  const absl::StatusOr<JobServiceClient> service =
      JobServiceClient::Connect(options.job.empty() ? options.service : one->service);
  if (!service.ok()) return Complain(service.status());
  wire::ListJobsRequest request;
  request.set_ended_max(options.ended);
  if (!one->ids.empty()) request.set_id(*one->ids.begin());
  const absl::StatusOr<wire::ListJobsReply> jobs = service->ListJobs(request);
  if (!jobs.ok()) return Complain(jobs.status());
  const absl::Time now = absl::Now();
  if (options.json) {
    std::printf("%s", JobsJson(*jobs, now).c_str());
  } else if (jobs->jobs().empty()) {
    std::printf("There are no jobs.\n");
  } else {
    std::printf("%s", RenderJobs(*jobs, now).c_str());
  }
  return kExitDone;
}

struct LogsOptions {
  std::string job;
  std::string process;
  bool follow = false;
  bool all = false;
};

int ShowLogs(const LogsOptions& options) {
  const absl::StatusOr<JobsOfOne> jobs = ParseJobs({options.job});
  if (!jobs.ok()) return ComplainOfWrongUse(jobs.status());
  const absl::StatusOr<JobServiceClient> service = JobServiceClient::Connect(jobs->service);
  if (!service.ok()) return Complain(service.status());
  wire::ReadJobLogRequest request;
  request.set_id(*jobs->ids.begin());
  request.set_process(options.process);
  request.set_from(options.all ? 0 : -kTailBytes);
  wire::ListJobsRequest one;
  one.set_id(request.id());
  while (true) {
    const absl::StatusOr<wire::ReadJobLogReply> log = service->ReadJobLog(request);
    if (absl::IsNotFound(log.status()) && options.follow) {
      // A job has no log before it begins, and never gets one if it ends before.
      const absl::StatusOr<wire::ListJobsReply> job = service->ListJobs(one);
      if (!job.ok()) return Complain(job.status());
      if (job->jobs_size() == 1 && HasEnded(job->jobs(0))) return Complain(log.status());
    } else if (!log.ok()) {
      return Complain(log.status());
    } else {
      std::fwrite(log->text().data(), 1, log->text().size(), stdout);
      std::fflush(stdout);
      request.set_from(log->next());
      if (log->end() || (log->text().empty() && !options.follow)) return kExitDone;
      if (!log->text().empty()) continue;
    }
    absl::Notification().WaitForNotificationWithTimeout(kFollowEvery);
  }
}

// Waits until the job has ended. Returns it as it ended.
absl::StatusOr<wire::ServiceJob> AwaitJobEnd(const JobServiceClient& service, uint64_t id, absl::Duration most) {
  wire::ListJobsRequest request;
  request.set_id(id);
  const absl::Time deadline = SteadyTime().Now() + most;
  while (true) {
    const absl::StatusOr<wire::ListJobsReply> jobs = service.ListJobs(request);
    if (!jobs.ok()) return jobs.status();
    if (jobs->jobs_size() == 1 && HasEnded(jobs->jobs(0))) return jobs->jobs(0);
    if (SteadyTime().Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat("job ", id, " has not ended within ", absl::FormatDuration(most),
                                                      "; `slackline logs ", id, "` shows what it does"));
    }
    absl::Notification().WaitForNotificationWithTimeout(kJobPoll);
  }
}

absl::StatusOr<wire::ServiceJob> EndJob(const JobServiceClient& service, uint64_t id, wire::JobOrder order,
                                        const std::string& reason) {
  wire::OrderJobRequest request;
  request.set_id(id);
  request.set_order(order);
  request.set_reason(reason);
  const absl::StatusOr<wire::ServiceJob> told = service.OrderJob(request);
  if (!told.ok()) return told;
  return AwaitJobEnd(service, id, order == wire::JOB_ORDER_STOP ? kStoppedMax : kCancelledMax);
}

// Logs why an order failed. Returns the exit code: kExitWrongUse if the job's state does not allow it.
int ComplainOfOrder(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) ? ComplainOfWrongUse(status) : Complain(status);
}

// Does something with each of the jobs, also after one that refuses it; `act` returns what it says. Returns the exit
// code of the last that refused.
template <typename Act>
int WithJobs(const std::vector<std::string>& words, const Act& act) {
  const absl::StatusOr<JobsOfOne> jobs = ParseJobs(words);
  if (!jobs.ok()) return ComplainOfWrongUse(jobs.status());
  const absl::StatusOr<JobServiceClient> service = JobServiceClient::Connect(jobs->service);
  if (!service.ok()) return Complain(service.status());
  int code = kExitDone;
  for (const uint64_t id : jobs->ids) {
    const absl::StatusOr<std::string> said = act(*service, id);
    if (said.ok()) {
      std::printf("%s\n", said->c_str());
      continue;
    }
    code = ComplainOfOrder(said.status());
    if (absl::IsUnavailable(said.status())) break;
  }
  return code;
}

int Cancel(const std::vector<std::string>& words) {
  return WithJobs(words, [](const JobServiceClient& service, uint64_t id) -> absl::StatusOr<std::string> {
    const absl::StatusOr<wire::ServiceJob> job =
        EndJob(service, id, wire::JOB_ORDER_CANCEL, "cancelled by `slackline cancel`");
    if (!job.ok()) return job.status();
    return absl::StrCat("job ", id, " is ", StateName(*job));
  });
}

int Remove(const std::vector<std::string>& words) {
  return WithJobs(words, [](const JobServiceClient& service, uint64_t id) -> absl::StatusOr<std::string> {
    wire::OrderJobRequest request;
    request.set_id(id);
    request.set_order(wire::JOB_ORDER_REMOVE);
    const absl::StatusOr<wire::ServiceJob> removed = service.OrderJob(request);
    if (!removed.ok()) return removed.status();
    return absl::StrCat("removed job ", id);
  });
}

void AddServiceFolder(CLI::App& command, std::string& service) {
  command.add_option("--service", service, "Folder of the service. Default: the one that you started last")
      ->type_name("FOLDER");
}

void AddJobNames(CLI::App& command, std::vector<std::string>& words) {
  command.add_option("JOB", words, "Numbers of jobs, or SERVICE/NUMBER with the folder of the service")->required();
}

}  // namespace

int StopJobOfService(const NamedJob& job, const std::string& reason) {
  const absl::StatusOr<JobServiceClient> service = JobServiceClient::Connect(job.service);
  if (!service.ok()) return Complain(service.status());
  const absl::StatusOr<wire::ServiceJob> end = EndJob(*service, job.id, wire::JOB_ORDER_STOP, reason);
  if (!end.ok()) return ComplainOfOrder(end.status());
  const std::string name = (std::filesystem::path(job.service) / absl::StrCat(job.id)).string();
  std::printf("job %s is %s; to continue: slackline resume %s\n", name.c_str(), StateName(*end).c_str(), name.c_str());
  return end->state() == wire::SERVICE_JOB_FAILED ? kExitFailed : kExitDone;
}

int ResumeJobOfService(const NamedJob& job, const std::vector<std::string>& overrides) {
  const absl::StatusOr<JobServiceClient> service = JobServiceClient::Connect(job.service);
  if (!service.ok()) return Complain(service.status());
  wire::OrderJobRequest request;
  request.set_id(job.id);
  request.set_order(wire::JOB_ORDER_RESUME);
  for (const std::string& setting : overrides) request.add_overrides(setting);
  const absl::StatusOr<wire::ServiceJob> resumed = service->OrderJob(request);
  if (!resumed.ok()) return ComplainOfOrder(resumed.status());
  std::printf("job %llu is %s\n", static_cast<unsigned long long>(job.id), StateName(*resumed).c_str());
  return kExitDone;
}

AddedCommand AddSubmit(CLI::App& app, const char* /*program*/) {
  const auto options = std::make_shared<SubmitOptions>();
  CLI::App* command = app.add_subcommand("submit", "Put a job into the queue of the service");
  AddJobFile(*command, options->job_file);
  AddOverrides(*command, options->overrides);
  command->add_option("--script", options->script.script, "Python script of the workers")->type_name("SCRIPT");
  AddScript(*command, options->script);
  command
      ->add_option("--on", options->on,
                   "Where the job runs: local, the machine of the service; slurm, an allocation. Default: local")
      ->type_name("PLACE")
      ->check(CLI::IsMember({kLocal, kSlurm}));
  command->add_option("--sbatch", options->sbatch, "Option for sbatch: --sbatch=--nodes=4. May be repeated")
      ->type_name("OPTION")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  command
      ->add_option("--chdir", options->folder,
                   "Folder in which the job runs, and from which paths count. Default: the present one")
      ->type_name("FOLDER")
      ->check(FolderMistake);
  command->add_option("--name", options->name, "Name in the list of jobs. Default: that of the job file");
  command
      ->add_option(
          "--priority", options->priority,
          "Jobs of a higher priority begin first; among equals the one whose owner runs the fewest. Default: 0")
      ->check(CLI::Range(-JobQueue::kPriorityMax, JobQueue::kPriorityMax));
  command->add_option("--owner", options->owner, "Who submits, for limits of owners. Default: the name of this user");
  AddBytes(
      *command, "--memory", options->memory_bytes,
      "Memory that all processes of the job need: 8GB. The job waits until the service has so much. Default: none");
  command->add_option("--gpus", options->gpus, "Number of GPUs that the job gets for itself. Default: 0")
      ->check(CLI::Range(0, 1000));
  AddServiceFolder(*command, options->service);
  SetHelp(*command, kSubmitHelp);
  return {command, [options] { return Submit(*options); }};
}

AddedCommand AddJobs(CLI::App& app, const char* /*program*/) {
  const auto options = std::make_shared<JobsOptions>();
  CLI::App* command = app.add_subcommand("jobs", "List the jobs of the service: state, epochs, accuracy, age, size");
  command->add_option("JOB", options->job, "Number of the only job to show, or SERVICE/NUMBER. Default: all");
  command->add_option("--ended", options->ended, "Number of ended jobs to show, the newest ones. Default: 20");
  command->add_flag("--json", options->json, "Print a JSON array, with bytes, seconds and shares");
  AddServiceFolder(*command, options->service);
  SetHelp(*command, kJobsHelp);
  return {command, [options] { return ListJobs(*options); }};
}

AddedCommand AddLogs(CLI::App& app, const char* /*program*/) {
  const auto options = std::make_shared<LogsOptions>();
  CLI::App* command = app.add_subcommand("logs", "Show the output of a job of the service");
  command->add_option("JOB", options->job, "Number of the job, or SERVICE/NUMBER with the folder of the service")
      ->required();
  command->add_flag("-f,--follow", options->follow, "Show what is added, until the job ends");
  command->add_flag("--all", options->all, "Show all of it, and not only the last 32 KiB");
  command->add_option("--process", options->process, "Show the log of a process of the job, as worker-1")
      ->type_name("NAME");
  SetHelp(*command, kLogsHelp);
  return {command, [options] { return ShowLogs(*options); }};
}

AddedCommand AddCancel(CLI::App& app, const char* /*program*/) {
  const auto options = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("cancel", "End jobs of the service at once");
  AddJobNames(*command, *options);
  SetHelp(*command, kCancelHelp);
  return {command, [options] { return Cancel(*options); }};
}

AddedCommand AddRemove(CLI::App& app, const char* /*program*/) {
  const auto options = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("rm", "Delete ended jobs of the service, with their results");
  AddJobNames(*command, *options);
  SetHelp(*command, kRemoveHelp);
  return {command, [options] { return Remove(*options); }};
}

}  // namespace slackline::cli
