// slackline-scheduler: one a job. Exits with 0 when the job is done or was stopped, 1 when it failed, 2 on wrong use.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/address.h"
#include "common/checkpoint/folder.h"
#include "common/job/command_options.h"
#include "common/job/job_file.h"
#include "common/job/job_timeouts.h"
#include "common/log/log_format.h"
#include "common/log/logging.h"
#include "common/metrics/metrics.h"
#include "common/metrics/process_metrics.h"
#include "common/metrics/serve_metrics.h"
#include "common/network/on_this_machine.h"
#include "common/network/ports.h"
#include "common/process/kill_point.h"
#include "common/rpc/channel.h"
#include "common/security/security.h"
#include "common/text/folder_name.h"
#include "common/text/help.h"
#include "common/text/version_text.h"
#include "common/time/clock.h"
#include "scheduler/control/controller.h"
#include "scheduler/record/run_folder.h"
#include "scheduler/record/state_store.h"
#include "scheduler/service/address.h"
#include "scheduler/service/run_loop.h"
#include "scheduler/service/scheduler_metrics.h"
#include "scheduler/service/server_links.h"
#include "scheduler/service/service.h"
#include "scheduler/status/settings_and_logs.h"
#include "scheduler/status/status_board.h"
#include "scheduler/status/status_pages.h"

namespace slackline::scheduler {
namespace {

// Exit code of a wrong command line or job file.
constexpr int kWrongUse = 2;

struct Options {
  std::string job_file;
  // Settings that override the job file, each "KEY=VALUE".
  std::vector<std::string> overrides;
  // HOST:PORT to listen on; empty: network.listen, and a port of network.ports or one that the system chooses.
  std::string listen;
  // Run folder; empty: the job file's, or a new one under runs/.
  std::string run_folder;
  // File to write host:port to once the scheduler listens, besides the run folder's scheduler.address; empty: none.
  std::string address_file;
  // True to continue the run in the run folder, whose scheduler has died.
  bool resume = false;
  // Checkpoint from which to continue the run in the run folder, with other servers and workers; empty: none.
  std::string from_checkpoint;
  // True if no supervisor polls for the result, so the scheduler exits without waiting.
  bool unwatched = false;
};

// Returns the options; nullopt if the program is to end at once (--help, --version, wrong use): `exit_code` says how.
std::optional<Options> ParseOptions(int argc, char** argv, int& exit_code) {
  Options options;
  CLI::App app("Scheduler of one job: places shards, distributes training data, and ends the job.",
               "slackline-scheduler");
  app.set_version_flag("--version", VersionText("slackline-scheduler"));
  AddJobFile(app, options.job_file);
  AddOverrides(app, options.overrides);
  app.add_option("--listen", options.listen, "Address to listen on. Default: network.listen and a free port")
      ->type_name("HOST:PORT")
      ->check(AddressMistake);
  app.add_option("--run-folder", options.run_folder,
                 "Folder for the results. Default: output.folder, or runs/NAME-DATE-TIME")
      ->type_name("DIR")
      ->check(FolderMistake);
  app.add_option("--address-file", options.address_file, "Also write HOST:PORT into this file")->type_name("FILE");
  app.add_flag("--resume", options.resume,
               "Continue the run in the run folder after its scheduler has crashed. Servers and workers find the new "
               "scheduler by scheduler.address in that folder, or by the same --listen");
  app.add_option("--from-checkpoint", options.from_checkpoint,
                 "Continue the run in the run folder from this checkpoint, with new servers and workers")
      ->type_name("DIR")
      ->excludes("--resume")
      ->needs("--run-folder");
  app.add_flag("--unwatched", options.unwatched,
               "Exit when the job ends, without waiting until a supervisor has asked for the result");
  std::string kill_at;
  // Not in --help: it is for tests.
  app.add_option("--kill-at", kill_at)->group("");
  SetHelp(app,
          {.example = "slackline-scheduler job.yaml --run-folder runs/first",
           .most_used = "--listen --run-folder --set",
           .groups = {{"Continue a run", "--resume --from-checkpoint"}, {"Supervision", "--address-file --unwatched"}},
           .text = "Exit codes: 0 done or stopped; 1 failed; 2 wrong use."});
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? 0 : kWrongUse;
    return std::nullopt;
  }
  if (const absl::Status armed = kill_point::Arm(kill_at); !armed.ok()) {
    std::cerr << "--kill-at: " << armed.message() << std::endl;
    exit_code = kWrongUse;
    return std::nullopt;
  }
  return options;
}

constexpr int kFailed = 1;

int Complain(const absl::Status& status, int exit_code) {
  log::Error(std::string(status.message()));
  log::Flush();
  return exit_code;
}

// Never 0, which means that one does not know.
JobId NewJobId() {
  std::random_device random;
  return JobId((uint64_t{random()} << 32 | random()) | 1);
}

std::string RunFolderPath(const Options& options, const job::Job& job) {
  if (!options.run_folder.empty()) return options.run_folder;
  return job.output().folder().empty() ? DefaultRunFolder(job.name(), absl::Now()) : job.output().folder();
}

// Absolute, since servers have working directories of their own; empty where none are kept. A run that goes on from a
// checkpoint has new ones; those of before are of no use to it.
std::string SnapshotFolder(const Options& options, const job::Job& job, JobId id, const std::string& run_folder) {
  if (job.durability().mode() != job::Durability::SNAPSHOT) return "";
  const std::string& folder = job.durability().folder();
  if (folder.empty()) {
    const std::string name = "snapshots", own = absl::StrFormat("%s-%016x", name, id.value());
    return std::filesystem::absolute(run_folder) / (options.from_checkpoint.empty() ? name : own);
  }
  return std::filesystem::absolute(folder) / absl::StrFormat("%s-%016x", job.name(), id.value());
}

// Removes the snapshots from before the run continued from a checkpoint.
void RemoveOldSnapshots(const std::string& run_folder, const std::string& present) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(run_folder, error), end; !error && at != end; at.increment(error)) {
    const std::filesystem::path path = at->path();
    if (!absl::StartsWith(path.filename().string(), "snapshots") || path == present) continue;
    std::error_code removed;
    std::filesystem::remove_all(path, removed);
    if (removed) log::Warning("cannot delete old snapshots in ", path.string(), ": ", removed.message());
  }
}

// Returns a function that removes what a run that continues from a checkpoint no longer needs: old snapshots, later
// checkpoints and their records. The function is called when training begins, so a run that cannot begin keeps all.
std::function<absl::Status()> GoesOn(const std::optional<checkpoint::Manifest>& from, RunFolderWriter& folder,
                                     const std::string& checkpoints, const std::string& snapshots,
                                     StatusHistory& history) {
  if (!from) return nullptr;
  return
      [&folder, &history, checkpoints, snapshots, number = from->number(), elapsed_s = from->scheduler().elapsed_s()] {
        RemoveOldSnapshots(folder.path(), snapshots);
        absl::Status status = checkpoint::PutAsideAfter(checkpoints, number);
        status.Update(folder.CutBack(elapsed_s));
        history.Load(folder.path());
        return status;
      };
}

// A scheduler that is about to end has the store open a little longer, and somebody may make room on a full disk.
absl::StatusOr<std::unique_ptr<StateStore>> OpenStore(const std::string& folder, absl::Duration patience) {
  const SteadyTime time;
  const absl::Time begin = time.Now();
  for (uint32_t tries = 1;; ++tries) {
    absl::StatusOr<std::unique_ptr<StateStore>> store = StateStore::Open(folder);
    const std::string waited = absl::FormatDuration(absl::Trunc(time.Now() - begin, absl::Milliseconds(100)));
    if (store.ok()) {
      if (tries > 1) log::Info("the scheduler opened its saved state after ", waited, " and ", tries, " tries");
      return store;
    }
    const bool full = absl::IsResourceExhausted(store.status());
    if (!absl::IsAborted(store.status()) && !full) return store;
    if (time.Now() - begin > patience) {
      const absl::string_view advice =
          full ? "make room on this disk" : "does another scheduler of this run still run?";
      return absl::Status(store.status().code(), absl::StrCat(store.status().message(), "; tried ", tries, " times in ",
                                                              waited, " (timeouts.startup_ms): ", advice));
    }
    if (tries == 1) {
      log::Warning("the scheduler cannot open its saved state, and tries again for up to ",
                   absl::FormatDuration(patience), ": ", std::string(store.status().message()));
    }
    absl::Notification().WaitForNotificationWithTimeout(absl::Milliseconds(200));
  }
}

// The state is one record: a part of it would contradict what servers and workers were told.
absl::Status WithAdvice(const absl::Status& status) {
  if (!absl::IsDataLoss(status)) return status;
  return absl::DataLossError(absl::StrCat(status.message(),
                                          "; the run can go on from its newest checkpoint: start the scheduler with "
                                          "--from-checkpoint DIR in the place of --resume"));
}

// Returns the time between two events of the status page: that between reports, but from 0.5 to 5 s.
absl::Duration EventsEvery(const job::Job& job) {
  return std::clamp(absl::Milliseconds(job.output().report_every_ms()), absl::Milliseconds(500), absl::Seconds(5));
}

// Metrics and the status page. A scheduler that goes on is where it was before, if that is free: people look at it.
// `network`: as it is on this machine.
absl::StatusOr<std::string> Serve(const job::Job& job, const job::Network& network, const std::string& run_folder,
                                  Metrics& metrics, StatusBoard& board) {
  const StatusPagesOptions options{.every = EventsEvery(job), .settings = SettingsJson(job), .run_folder = run_folder};
  const auto serve = [&](const job::Network& where) {
    return ServeMetrics(where, metrics, StatusPages(board, options), ThreadsFor(options));
  };
  const std::string file = run_folder + "/scheduler.page";
  absl::StatusOr<std::string> served = absl::UnavailableError("not tried");
  std::string before;
  uint32_t port = 0;
  if (std::ifstream(file) >> before && absl::SimpleAtoi(before.substr(before.rfind(':') + 1), &port) && port <= 65535 &&
      network.metrics_port() == 0) {
    job::Network same = network;
    same.set_metrics_port(port);
    served = serve(same);
  }
  if (!served.ok()) served = serve(network);
  if (served.ok() && !served->empty()) std::ofstream(file) << *served << '\n';
  return served;
}

// The state of a job that was stopped without a last checkpoint, as if this process had died instead.
void LeaveToGoOn(const Controller& controller, StateStore& store, const std::string& run_folder) {
  state::Scheduler state = controller.Save(absl::Now());
  state.set_job_state(wire::JOB_TRAINING);
  state.clear_reason();
  if (const absl::Status kept = store.Save(state); !kept.ok()) {
    return log::Error("cannot save the scheduler's state: ", std::string(kept.message()));
  }
  log::Warning(
      "the scheduler could not make a last checkpoint, but the snapshots of the servers still exist; to continue, "
      "start the scheduler with --resume --run-folder ",
      run_folder, ", and the servers with the same names");
}

int Run(const Options& options) {
  absl::StatusOr<job::Job> read = ReadJobFile(options.job_file, options.overrides);
  if (!read.ok()) return Complain(read.status(), kWrongUse);
  const job::Job job = Resolve(*read);
  if (job.output().log_format() == job::Output::JSON) log::WriteJson(job.name());
  const absl::StatusOr<job::Network> network = network::OnThisMachine(job.network());
  if (!network.ok()) return Complain(network.status(), kWrongUse);
  const std::string listen = ListenAddress(options.listen, *network);
  absl::Status allowed = security::CheckListening(HostOf(listen), job.security());
  if (network->metrics()) allowed.Update(security::CheckListening(network->listen(), job.security()));
  if (!allowed.ok()) return Complain(allowed, kWrongUse);
  const absl::StatusOr<security::Security> security = security::Security::Open(job, security::Role::kScheduler);
  if (!security.ok()) return Complain(security.status(), kWrongUse);
  const std::string path = RunFolderPath(options, job);
  std::optional<checkpoint::Manifest> checkpoint;
  if (!options.from_checkpoint.empty()) {
    absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::ReadManifest(options.from_checkpoint);
    if (!manifest.ok()) return Complain(manifest.status(), kFailed);
    checkpoint = *std::move(manifest);
  }
  absl::StatusOr<std::unique_ptr<RunFolderWriter>> folder = options.resume || checkpoint
                                                                ? RunFolderWriter::Reopen(path, job, absl::Now())
                                                                : RunFolderWriter::Create(path, job, absl::Now());
  if (!folder.ok()) return Complain(folder.status(), kFailed);
  std::unique_ptr<StateStore> store;
  const std::string state_folder = (*folder)->path() + "/scheduler";
  if (options.resume || job.durability().mode() != job::Durability::NONE) {
    absl::StatusOr<std::unique_ptr<StateStore>> opened = OpenStore(state_folder, TimeoutsOf(job).startup);
    if (!opened.ok()) return Complain(WithAdvice(opened.status()), kFailed);
    store = *std::move(opened);
  }
  std::optional<state::Scheduler> saved;
  if (options.resume) {
    absl::StatusOr<std::optional<state::Scheduler>> loaded = store->Load();
    if (!loaded.ok()) return Complain(WithAdvice(loaded.status()), kFailed);
    if (!*loaded) return Complain(absl::NotFoundError("found no saved state in " + state_folder), kFailed);
    saved = *std::move(loaded);
  }

  const SteadyTime time;
  const Timeouts timeouts = TimeoutsOf(job);
  const std::string checkpoints = checkpoint::FolderOfRun(job.checkpoint().folder(), (*folder)->path());
  StatusBoard board({.run_folder = (*folder)->path(), .checkpoints = checkpoints});
  board.history().Load((*folder)->path());
  Metrics metrics(ProcessLabels(job.name(), "scheduler", "scheduler"));
  SchedulerMetrics series(metrics);
  series.SetJob(job, RunName((*folder)->path()));
  const absl::StatusOr<std::string> served = Serve(job, *network, (*folder)->path(), metrics, board);
  if (!served.ok()) return Complain(served.status(), kFailed);
  ScrapeTargets targets((*folder)->path(), job.name(), *served, job.output().targets_folder());
  ServerLinks links(timeouts, security->To(security::Role::kServer));
  const JobId id = saved ? JobId(saved->job()) : NewJobId();
  const std::string snapshots = saved ? saved->snapshot_folder() : SnapshotFolder(options, job, id, (*folder)->path());
  Controller controller({.job = job,
                         .fingerprint = Fingerprint(job),
                         .id = id,
                         .run_folder = (*folder)->path(),
                         .snapshot_folder = snapshots,
                         .checkpoint_folder = checkpoints,
                         .checkpoint_number = checkpoint::LastNumber(checkpoints),
                         .keeps_state = store != nullptr,
                         .timeouts = timeouts,
                         .page = served->empty() ? "" : absl::StrCat("http://", *served, "/"),
                         .tells_after_record = true,
                         .unwatched = options.unwatched},
                        time, links);
  // Its threads call the controller, however this ends.
  const absl::Cleanup close_links = [&links] { links.Close(); };
  // Servers and workers cannot call yet.
  if (saved) {
    if (absl::Status restored = controller.Restore(*saved, absl::Now()); !restored.ok())
      return Complain(WithAdvice(restored), kFailed);
    // At once: should this one die, too, the next one must not give the numbers again that it gives from now on.
    if (absl::Status kept = store->Save(controller.Save(absl::Now())); !kept.ok())
      log::Error("cannot save the scheduler's state: ", std::string(kept.message()));
  }
  if (checkpoint) {
    absl::Status going_on = controller.GoOnFrom(*checkpoint, std::filesystem::absolute(options.from_checkpoint));
    if (!going_on.ok()) return Complain(going_on, kFailed);
  }
  board.Open([&controller] { return controller.View(); });
  const absl::Cleanup close_board = [&board] { board.Close(); };
  absl::StatusOr<std::unique_ptr<SchedulerServer>> server = network::StartServer<SchedulerServer>(
      listen, network->ports(),
      [&](const std::string& at) { return SchedulerServer::Start(at, controller, *security, &board); });
  if (!server.ok()) return Complain(server.status(), kFailed);
  const std::string address = AdvertisedAddress(listen, *network, (*server)->port());
  if (const std::string warning = security::ListeningWarning(HostOf(listen), job.security()); !warning.empty()) {
    log::Warning(warning);
  }
  log::Info("job ", job.name(), " listens on ", address, ", writes to ", (*folder)->path());
  for (const std::string& file : {(*folder)->path() + "/scheduler.address", options.address_file}) {
    if (file.empty()) continue;
    if (absl::Status written = WriteAddressFile(file, address); !written.ok()) return Complain(written, kFailed);
  }

  metrics.SetMissing("");
  const absl::Duration report_every = absl::Milliseconds(job.output().report_every_ms());
  RunUntilFinished(controller,
                   {.folder = **folder,
                    .metrics = series,
                    .targets = &targets,
                    .path = (*folder)->path(),
                    .store = store.get(),
                    .history = &board.history(),
                    .checkpoints = checkpoints,
                    .checkpoints_kept = {.newest = job.checkpoint().keep(), .best = job.checkpoint().keep_best()},
                    .on_begin = GoesOn(checkpoint, **folder, checkpoints, snapshots, board.history()),
                    .room_max = absl::Seconds(job.checkpoint().timeout_s())},
                   std::min(timeouts.heartbeat / 2, report_every));
  // The server and the links call the controller, so they end before it does.
  server->reset();
  links.Close();
  const bool unsaved = store != nullptr && controller.StoppedUnsaved();
  if (unsaved) LeaveToGoOn(controller, *store, (*folder)->path());
  store.reset();
  // A job that has ended in good order is never continued from this state.
  std::error_code ignored;
  if (controller.state() != wire::JOB_FAILED && !unsaved) std::filesystem::remove_all(state_folder, ignored);
  log::Flush();
  return controller.state() == wire::JOB_FAILED ? kFailed : 0;
}

int Main(int argc, char** argv) {
  rpc::PrepareProcess();
  rpc::SilenceGrpcLogButRefusals();
  int exit_code = 0;
  const auto options = ParseOptions(argc, argv, exit_code);
  if (!options) return exit_code;
  BlockStopSignals();
  log::Initialise("scheduler");
  return Run(*options);
}

}  // namespace
}  // namespace slackline::scheduler

int main(int argc, char** argv) { return slackline::scheduler::Main(argc, argv); }
