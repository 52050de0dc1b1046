#include "cli/service/job_host.h"

#include <signal.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/base/complain.h"
#include "cli/run/listed_run.h"
#include "cli/run/run_checks.h"
#include "cli/run/run_end.h"
#include "cli/run/run_lock.h"
#include "cli/run/script.h"
#include "cli/run/slurm_queue.h"
#include "common/checkpoint/folder.h"
#include "common/job/job_file.h"
#include "common/log/logging.h"
#include "common/storage/durable_file.h"
#include "common/text/utf8.h"
#include "common/time/clock.h"
#include "worker/settings/job_checks.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

// Pause between the two signals that end a run at once: the system keeps only one pending signal of a kind.
constexpr absl::Duration kSecondStop = absl::Milliseconds(200);
// A run that does not end by then is killed.
constexpr absl::Duration kCancelMax = absl::Seconds(5);
constexpr int64_t kJobLogBytesMax = int64_t{1} << 20;
// Ended jobs in one answer, and its bytes: gRPC's clients take 4 MiB.
constexpr uint32_t kEndedListedMax = 10000;
constexpr size_t kListedBytesMax = 3 << 20;
// Folders of removed jobs, until they are deleted.
constexpr char kRemoved[] = "removed-";

constexpr char kVisibleGpus[] = "CUDA_VISIBLE_DEVICES=";
constexpr char kOrderOfGpus[] = "CUDA_DEVICE_ORDER=";

double NowS() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

absl::Status WriteDurably(const fs::path& path, const std::string& text) {
  DurableFile file(path.string());
  absl::Status status = file.Open();
  if (status.ok()) status = file.Write(text.data(), text.size());
  if (status.ok()) status = file.Commit();
  return status;
}

uint64_t BytesOf(const fs::path& file) {
  std::error_code error;
  const uintmax_t bytes = fs::file_size(file, error);
  return error ? 0 : bytes;
}

// Returns the state that the process which follows the job on SLURM has noted; empty if it has noted none yet.
std::string StateOnSlurm(const fs::path& run) {
  std::ifstream in(run / "submit" / "queue");
  std::string line;
  std::getline(in, line);
  return ValidText(line);
}

// Deletes a folder of a job that is not in the book any more.
void DeleteFolder(const fs::path& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (error) log::Warning("cannot delete ", folder.string(), ": ", error.message());
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobHost>> JobHost::Open(Options options) {
  std::error_code error;
  options.folder = fs::absolute(options.folder).lexically_normal();
  const std::string folder = options.folder.string();
  const bool known = fs::exists(options.folder / "book", error);
  if (!known && fs::exists(options.folder, error) && !fs::is_empty(options.folder, error)) {
    return absl::AlreadyExistsError(absl::StrCat(
        "found files in ", folder, "; allowed is the folder of a service, or one that is empty or does not exist"));
  }
  fs::create_directories(options.folder, error);
  // Jobs run as this user, and their settings may hold secrets.
  if (!error) fs::permissions(options.folder, fs::perms::owner_all, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot make ", folder, ": ", error.message()));
  // The book comes first: by it the next host knows the folder.
  absl::StatusOr<std::unique_ptr<JobBook>> book = JobBook::Open(options.folder / "book");
  if (!book.ok()) return book.status();
  fs::create_directories(options.folder / "jobs", error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot make ", folder, "/jobs: ", error.message()));
  std::unique_ptr<JobHost> host(new JobHost(std::move(options), *std::move(book)));
  if (absl::Status found = host->FindJobs(); !found.ok()) return found;
  return host;
}

absl::Status JobHost::FindJobs() {
  const absl::MutexLock lock(&mutex_);
  // A removal that an earlier host began.
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(options_.folder / "jobs", error)) {
    const std::string name = entry.path().filename();
    uint64_t id = 0;
    if (!absl::StartsWith(name, kRemoved) || !absl::SimpleAtoi(name.substr(sizeof(kRemoved) - 1), &id)) continue;
    if (absl::Status forgotten = book_->Remove(id); !forgotten.ok()) return forgotten;
    DeleteFolder(entry.path());
  }
  const absl::StatusOr<std::vector<wire::ServiceJob>> jobs = book_->Load();
  if (!jobs.ok()) return jobs.status();
  const absl::StatusOr<uint64_t> removed = book_->LastRemoved();
  if (!removed.ok()) return removed.status();
  queue_.CountFrom(*removed);
  for (const wire::ServiceJob& job : *jobs) {
    queue_.Restore(job);
    if (job.state() != wire::SERVICE_JOB_RUNNING) continue;
    if (std::optional<JobProcess> process = JobProcess::Find(FolderOf(job.id()) / "process")) {
      // The host does not signal a job again that was told to stop: a second signal would keep it from saving.
      running_.emplace(job.id(), Running{*std::move(process), job.told() ? 1 : 0});
      log::Info("job ", job.id(), " (", job.name(), ") still runs");
      if (const std::string gpus = queue_.OtherGpus(job.id()); !gpus.empty()) log::Warning(gpus);
    } else {
      Ended(job.id(), std::nullopt);
    }
  }
  return absl::OkStatus();
}

absl::Status JobHost::SaveOr(const wire::ServiceJob& job, const wire::ServiceJob& before) {
  absl::Status saved = book_->Save(job);
  if (!saved.ok()) queue_.Restore(before);
  return saved;
}

void JobHost::Keep(const wire::ServiceJob& job) {
  const absl::Status saved = book_->Save(job);
  if (!saved.ok()) log::Error("cannot save job ", job.id(), ": ", std::string(saved.message()));
}

absl::StatusOr<wire::SubmitReply> JobHost::Submit(const wire::SubmitRequest& request) {
  const absl::MutexLock lock(&mutex_);
  absl::StatusOr<wire::ServiceJob> job = queue_.Submit(request, NowS());
  if (!job.ok()) return job.status();
  const fs::path folder = FolderOf(job->id());
  std::error_code error;
  fs::create_directories(folder, error);
  absl::Status kept = error
                          ? absl::UnavailableError(absl::StrCat("cannot make ", folder.string(), ": ", error.message()))
                          : WriteDurably(folder / "job.yaml", request.launch().job_yaml());
  // The file has it.
  job->mutable_launch()->clear_job_yaml();
  if (kept.ok()) kept = book_->Save(*job);
  if (!kept.ok()) {
    queue_.Remove(job->id());
    fs::remove_all(folder, error);
    return kept;
  }
  queue_.Restore(*job);
  wire::SubmitReply reply;
  reply.set_id(job->id());
  return reply;
}

absl::Status JobHost::CheckOrder(const wire::ServiceJob& job, const wire::OrderJobRequest& request) const {
  const fs::path run = FolderOf(job.id()) / "run";
  const bool ended = request.order() == wire::JOB_ORDER_RESUME || request.order() == wire::JOB_ORDER_REMOVE;
  if (const std::string who = ended ? WhoRuns(run) : ""; !who.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("job ", job.id(), ": ", who, " continues its run in ",
                                                      run.string(), "; stop it first: slackline stop ", run.string()));
  }
  if (request.order() != wire::JOB_ORDER_RESUME) return absl::OkStatus();
  std::error_code error;
  const bool begun = fs::exists(run / "job.yaml", error);
  const fs::path file = begun ? run / "job.yaml" : FolderOf(job.id()) / "job.yaml";
  const std::vector<std::string> overrides(request.overrides().begin(), request.overrides().end());
  const absl::StatusOr<job::Job> before = ReadJobFile(file);
  if (!before.ok()) return before.status();
  const absl::StatusOr<job::Job> after = ReadJobFile(file, overrides);
  if (!after.ok()) return after.status();
  if (absl::Status status = worker::CheckJob(Resolve(*after)); !status.ok()) return status;
  const absl::StatusOr<checkpoint::Choice> from =
      checkpoint::ChooseNewest(checkpoint::FolderOfRun(before->checkpoint().folder(), run));
  if (!from.ok()) return absl::OkStatus();
  if (absl::Status kept = CheckModelKept(Resolve(*before), Resolve(*after)); !kept.ok()) return kept;
  return CheckWorkIsLeft(*from, Resolve(*after));
}

absl::StatusOr<wire::OrderJobReply> JobHost::Order(const wire::OrderJobRequest& request) {
  wire::OrderJobReply reply;
  fs::path removed;
  {
    const absl::MutexLock lock(&mutex_);
    const wire::ServiceJob* const known = queue_.Find(request.id());
    const wire::ServiceJob before = known == nullptr ? wire::ServiceJob() : *known;
    const absl::StatusOr<wire::ServiceJob> job = queue_.Order(request, NowS());
    if (!job.ok()) return job.status();
    if (absl::Status allowed = CheckOrder(*job, request); !allowed.ok()) {
      queue_.Restore(before);
      return allowed;
    }
    *reply.mutable_job() = *job;
    reply.mutable_job()->clear_launch();
    if (request.order() != wire::JOB_ORDER_REMOVE) {
      if (absl::Status saved = SaveOr(*job, before); !saved.ok()) return saved;
      return reply;
    }
    const absl::StatusOr<fs::path> folder = Forget(request.id());
    if (!folder.ok()) return folder.status();
    removed = *folder;
  }
  DeleteFolder(removed);
  return reply;
}

absl::StatusOr<fs::path> JobHost::Forget(uint64_t id) {
  // The next host deletes a folder of this name, should this one die here.
  const fs::path folder = FolderOf(id);
  fs::path removed = folder.parent_path() / absl::StrCat(kRemoved, id);
  std::error_code error;
  fs::rename(folder, removed, error);
  if (absl::Status forgotten = book_->Remove(id); !forgotten.ok()) {
    fs::rename(removed, folder, error);
    return forgotten;
  }
  queue_.Remove(id);
  return removed;
}

void JobHost::RemoveSurplus() {
  while (true) {
    std::optional<fs::path> removed;
    {
      const absl::MutexLock lock(&mutex_);
      for (const uint64_t id : queue_.Surplus(NowS() - absl::ToDoubleSeconds(options_.ended_min))) {
        // Somebody may continue its run without the service.
        if (!WhoRuns(FolderOf(id) / "run").empty()) continue;
        const absl::StatusOr<fs::path> folder = Forget(id);
        if (!folder.ok()) {
          log::Error("cannot remove job ", id, ": ", std::string(folder.status().message()));
          return;
        }
        log::Info("job ", id, " is removed: ", options_.limits.ended, " ended jobs are kept");
        removed = *folder;
        break;
      }
    }
    if (!removed) return;
    DeleteFolder(*removed);
  }
}

std::string JobHost::WhyItWaits(const wire::ServiceJob& job) const {
  return absl::StrCat(job.reason(), job.reason().empty() ? "" : "; ", queue_.WhyItWaits(job.id()));
}

absl::StatusOr<wire::ListJobsReply> JobHost::List(const wire::ListJobsRequest& request) const {
  wire::ListJobsReply reply;
  {
    const absl::MutexLock lock(&mutex_);
    const wire::ServiceJob* const only = queue_.Find(request.id());
    if (request.id() != 0 && only == nullptr) return NoSuchJob(request.id());
    const uint32_t ended_max = std::min(request.ended_max(), kEndedListedMax);
    uint32_t ended = 0;
    size_t bytes = 0;
    const auto add = [&](const wire::ServiceJob& job) ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      wire::ServiceJob& listed = *reply.add_jobs();
      listed = job;
      listed.set_run_folder((FolderOf(job.id()) / "run").string());
      listed.clear_launch();
      listed.clear_overrides();
      if (job.state() == wire::SERVICE_JOB_QUEUED) listed.set_reason(WhyItWaits(job));
      bytes += listed.ByteSizeLong();
    };
    if (only != nullptr) add(*only);
    for (auto at = queue_.jobs().rbegin(); only == nullptr && at != queue_.jobs().rend(); ++at) {
      const wire::ServiceJob& job = at->second;
      const bool fits = bytes < kListedBytesMax && (!HasEnded(job) || ended++ < ended_max);
      fits ? add(job) : reply.set_unlisted(reply.unlisted() + 1);
    }
  }
  // The lock is free here, since run folders may be large. Those of ended jobs do not change.
  for (wire::ServiceJob& job : *reply.mutable_jobs()) {
    if (job.state() != wire::SERVICE_JOB_RUNNING) continue;
    const std::optional<ListedRun> run = LookAt(job.run_folder(), /*ask_slurm=*/false);
    if (run) *job.mutable_figures() = FiguresOf(*run);
    if (IsOnSlurm(job) && job.reason().empty()) job.set_reason(StateOnSlurm(job.run_folder()));
  }
  return reply;
}

absl::StatusOr<wire::ReadJobLogReply> JobHost::ReadLog(const wire::ReadJobLogRequest& request) const {
  wire::ReadJobLogReply reply;
  {
    const absl::MutexLock lock(&mutex_);
    const wire::ServiceJob* const job = queue_.Find(request.id());
    if (job == nullptr) return NoSuchJob(request.id());
    reply.set_end(HasEnded(*job));
  }
  const std::string& process = request.process();
  if (absl::StrContains(process, '/') || absl::StartsWith(process, ".")) {
    return absl::NotFoundError(
        absl::StrCat("found no process ", ValidText(process), "; allowed are names as worker-1"));
  }
  const fs::path folder = FolderOf(request.id());
  const fs::path file = process.empty() ? folder / "log" : folder / "run" / "logs" / absl::StrCat(process, ".log");
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    return absl::NotFoundError(process.empty() ? absl::StrCat("job ", request.id(), " has not begun")
                                               : absl::StrCat("job ", request.id(), " has no log of ", process));
  }
  in.seekg(0, std::ios::end);
  const int64_t size = in.tellg();
  int64_t from = request.from() >= 0 ? std::min(request.from(), size) : std::max<int64_t>(0, size + request.from());
  in.seekg(from);
  std::string& text = *reply.mutable_text();
  text.resize(static_cast<size_t>(std::min(kJobLogBytesMax, size - from)));
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  reply.set_next(from + static_cast<int64_t>(text.size()));
  // The text begins with a whole line.
  if (request.from() < 0 && from > 0) text.erase(0, text.find('\n') == std::string::npos ? 0 : text.find('\n') + 1);
  reply.set_end(reply.end() && reply.next() >= size);
  return reply;
}

JobEnd JobHost::EndOf(const wire::ServiceJob& job, const std::optional<JobProcess>& process) const {
  const absl::StatusOr<wire::JobStatus> recorded = ReadEnd(FolderOf(job.id()) / "run", /*ask_slurm=*/false);
  // An end of before the job was resumed is none.
  const bool fresh = recorded.ok() && BytesOf(FolderOf(job.id()) / "run" / "events.log") > job.begun_events();
  const std::string state = fresh ? recorded->state() : "";
  const std::string reason = fresh ? OneLine(recorded->reason()) : "";
  const bool known = process && process->end();
  const std::string how = known ? process->end()->Describe() : "it was not seen how";
  if (state == "done" || (known && process->end()->ok())) return {wire::SERVICE_JOB_DONE, ""};
  if (known && process->end()->by_signal) return {wire::SERVICE_JOB_UNKNOWN, how};
  if (known && process->end()->code == kExitWrongUse) {
    return {wire::SERVICE_JOB_FAILED, absl::StrCat("refused: ", OneLine(process->LastWords()))};
  }
  if (state == "stopped") return {wire::SERVICE_JOB_STOPPED, reason};
  if (state == "failed") return {wire::SERVICE_JOB_FAILED, reason};
  if (!known) return {wire::SERVICE_JOB_UNKNOWN, how};
  return {wire::SERVICE_JOB_FAILED, absl::StrCat(how, ": ", OneLine(process->LastWords()))};
}

void JobHost::Ended(uint64_t id, const std::optional<JobProcess>& process) {
  const wire::ServiceJob& known = *queue_.Find(id);
  JobEnd end = EndOf(known, process);
  end.advanced = NewestCheckpoint(id).value_or(0) > known.begun_checkpoint();
  const std::optional<ListedRun> run = LookAt(FolderOf(id) / "run", /*ask_slurm=*/false);
  if (run) queue_.SetFigures(id, FiguresOf(*run));
  const wire::ServiceJob& job = queue_.End(id, end, NowS());
  Keep(job);
  log::Info("job ", id, " (", job.name(), ") is ", StateName(job), job.reason().empty() ? "" : ": ", job.reason());
}

void JobHost::TakeEnds() {
  for (auto at = running_.begin(); at != running_.end();) {
    if (!at->second.process.Gone()) {
      ++at;
      continue;
    }
    Ended(at->first, at->second.process);
    at = running_.erase(at);
  }
}

void JobHost::TellOrders() {
  const absl::Time now = SteadyTime().Now();
  for (auto& [id, running] : running_) {
    const wire::ServiceJob& job = *queue_.Find(id);
    // A process that follows a job on SLURM is not killed: it ends once SLURM has ended the job.
    const int at_once = IsOnSlurm(job) ? 2 : 3;
    const int wanted = job.order() == wire::JOB_ORDER_CANCEL ? at_once : job.order() == wire::JOB_ORDER_STOP ? 1 : 0;
    if (running.told >= wanted || now < running.next) continue;
    if (running.told == 0) Keep(queue_.Tell(id));
    running.process.Signal(running.told < 2 ? SIGINT : SIGKILL);
    ++running.told;
    running.next = now + (running.told < 2 ? kSecondStop : kCancelMax);
  }
}

void JobHost::BeginJobs() {
  while (const std::optional<uint64_t> id = queue_.Next()) {
    // A host that died may have begun it, or what an earlier attempt has left behind still holds its lock.
    if (JobProcess::IsHeld(FolderOf(*id) / "process")) return;
    const wire::ServiceJob before = *queue_.Find(*id);
    const absl::StatusOr<uint64_t> newest = NewestCheckpoint(*id);
    const uint64_t checkpoint = newest.value_or(0);
    const uint64_t events = checkpoint > 0 ? BytesOf(FolderOf(*id) / "run" / "events.log") : 0;
    const wire::ServiceJob& job = queue_.Begin(*id, NowS(), checkpoint, events);
    // A job that cannot be saved does not begin: a later host would begin it once more. The next turn tries again.
    if (absl::Status saved = SaveOr(job, before); !saved.ok()) {
      log::Error("cannot save job ", *id, ", which therefore waits: ", std::string(saved.message()));
      return;
    }
    absl::StatusOr<JobProcess> process = newest.ok() ? StartJob(job) : newest.status();
    if (process.ok()) {
      log::Info("job ", *id, " (", job.name(), ") begins");
      running_.emplace(*id, Running{*std::move(process)});
      continue;
    }
    const JobEnd failed = {wire::SERVICE_JOB_FAILED, std::string(process.status().message())};
    Keep(queue_.End(*id, failed, NowS()));
    log::Error("job ", *id, " cannot begin: ", failed.reason);
  }
}

absl::StatusOr<uint64_t> JobHost::NewestCheckpoint(uint64_t id) const {
  const fs::path run = FolderOf(id) / "run";
  std::error_code error;
  if (!fs::exists(run / "job.yaml", error) && !error) return 0;
  const absl::StatusOr<job::Job> job = ReadJobFile(run / "job.yaml");
  if (!job.ok()) return job.status();
  const std::vector<checkpoint::Found> whole =
      checkpoint::List(checkpoint::FolderOfRun(job->checkpoint().folder(), run));
  return whole.empty() ? 0 : whole.front().number;
}

absl::Status JobHost::PutRunAside(const wire::ServiceJob& job) const {
  const fs::path run = FolderOf(job.id()) / "run";
  std::error_code error;
  if (fs::exists(run, error)) fs::rename(run, absl::StrCat(run.string(), "-", job.begins() - 1), error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot move ", run.string(), ": ", error.message()));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> JobHost::CommandFor(const wire::ServiceJob& job) const {
  const fs::path run = FolderOf(job.id()) / "run";
  const std::string job_file = FolderOf(job.id()) / "job.yaml";
  const bool on_slurm = IsOnSlurm(job);
  std::vector<std::string> command = {options_.program};
  if (LostOnSlurm(job) && SlurmJobOf(run)) {
    command.insert(command.end(), {"slurm", "wait", run});
    return command;
  }
  const bool goes_on = job.begun_checkpoint() > 0;
  // The folder of a lost submission stays: the next submission finds the job in SLURM by the batch script in it.
  if (!goes_on && !LostOnSlurm(job)) {
    if (absl::Status aside = PutRunAside(job); !aside.ok()) return aside;
  }
  const std::vector<std::string> script(job.launch().script().begin(), job.launch().script().end());
  const bool with_script = !goes_on && !script.empty();
  const std::vector<std::string> arguments = with_script ? ArgumentsIn(script) : std::vector<std::string>();
  if (on_slurm) {
    command.insert(command.end(), {"slurm", "submit", "--wait", "--run-folder", run});
    command.push_back(goes_on ? "--resume" : job_file);
    if (with_script) command.insert(command.end(), {"--script", ScriptIn(script), "--python", InterpreterIn(script)});
    for (const std::string& word : arguments) command.push_back(absl::StrCat("--script-argument=", word));
  } else if (goes_on) {
    command.insert(command.end(), {"resume", run});
  } else if (with_script) {
    command.insert(command.end(),
                   {"launch", ScriptIn(script), job_file, "--run-folder", run, "--python", InterpreterIn(script)});
  } else {
    command.insert(command.end(), {"train", job_file, "--run-folder", run});
  }
  for (const std::string& setting : job.overrides()) command.insert(command.end(), {"--set", setting});
  const std::vector<std::string> sbatch(job.launch().sbatch().begin(), job.launch().sbatch().end());
  const std::vector<std::string>& last = on_slurm ? sbatch : arguments;
  if (on_slurm || !last.empty()) command.push_back("--");
  if (on_slurm) command.push_back(absl::StrCat("--job-name=", job.name()));
  command.insert(command.end(), last.begin(), last.end());
  return command;
}

absl::StatusOr<JobProcess> JobHost::StartJob(const wire::ServiceJob& job) const {
  absl::StatusOr<std::vector<std::string>> command = CommandFor(job);
  if (!command.ok()) return command.status();
  const fs::path folder = FolderOf(job.id());
  std::vector<std::string> environment(job.launch().environment().begin(), job.launch().environment().end());
  if (!options_.limits.gpus.empty() && !IsOnSlurm(job)) {
    std::erase_if(environment, [](const std::string& variable) {
      return absl::StartsWith(variable, kVisibleGpus) || absl::StartsWith(variable, kOrderOfGpus);
    });
    // CUDA finds no GPU if the list is empty. PCI_BUS_ID makes a number mean the same GPU to all jobs.
    environment.push_back(absl::StrCat(kVisibleGpus, absl::StrJoin(job.gpus(), ",")));
    environment.push_back(absl::StrCat(kOrderOfGpus, "PCI_BUS_ID"));
  }
  return JobProcess::Start({.command = *std::move(command),
                            .working_folder = job.launch().folder(),
                            .log = folder / "log",
                            .file = folder / "process",
                            .environment = std::move(environment)});
}

void JobHost::Turn() {
  const absl::MutexLock lock(&mutex_);
  TakeEnds();
  TellOrders();
  BeginJobs();
}

QueueShare JobHost::Used() const {
  const absl::MutexLock lock(&mutex_);
  return queue_.used();
}

std::map<std::string, size_t> JobHost::Count() const {
  const absl::MutexLock lock(&mutex_);
  std::map<std::string, size_t> count;
  for (const auto& [id, job] : queue_.jobs()) ++count[StateName(job)];
  return count;
}

}  // namespace slackline::cli
