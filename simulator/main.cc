// slackline-simulator: a job in virtual time. Exits with 0 when the job is done, 1 when it failed, 2 on wrong use.
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include "absl/time/clock.h"
#include "common/job/command_options.h"
#include "common/job/job_file.h"
#include "common/job/job_timeouts.h"
#include "common/log/log_format.h"
#include "common/log/logging.h"
#include "common/log/output.h"
#include "common/process/held_signals.h"
#include "common/rpc/channel.h"
#include "common/text/help.h"
#include "common/text/version_text.h"
#include "scheduler/record/run_folder.h"
#include "simulator/cluster.h"
#include "simulator/no_computation.h"
#include "simulator/rules.h"
#include "simulator/torch_computation.h"
#include "simulator/view.h"
#include "worker/settings/job_checks.h"

namespace slackline::simulator {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUse = 2;

const HelpText kHelp = {
    .example = "slackline simulate job.yaml --set cluster.workers=64",
    .most_used = "--set --run-folder --no-gradients",
    .groups = {{"Speed and output", "--threads --quiet"}, {"Check", "--check"}},
    .text =
        "The section `simulation` of the job file describes workers, servers and links: compute time, latency and "
        "bandwidth. A laptop can therefore simulate a cluster. The run folder is like that of `slackline train`, with "
        "virtual time. Equal jobs write equal bytes. More: slackline help simulation.",
    .examples =
        "slackline simulate examples/fashion-mnist-mlp.yaml\n"
        "slackline simulate job.yaml --no-gradients --set cluster.workers=1000"};

struct Flags {
  std::string job_file;
  std::vector<std::string> overrides;
  std::string run_folder;
  uint32_t threads = 0;
  bool no_gradients = false;
  bool check = false;
  bool quiet = false;
};

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "slackline simulate: %s\n", std::string(status.message()).c_str());
  return code;
}

absl::StatusOr<std::unique_ptr<Computation>> MakeComputation(const Flags& flags, const job::Job& job) {
  const uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  const worker::WorkerConfig config = worker::MakeWorkerConfig(job, {"simulator"}, cores);
  return flags.no_gradients ? MakeNoComputation(config, LayoutOf)
                            : MakeTorchComputation(config, flags.threads > 0 ? flags.threads : cores);
}

// Checks that a module of the user's own can be read, if nothing else needs it before the run.
absl::Status CheckModule(const job::Job& job) {
  const worker::WorkerConfig config = worker::MakeWorkerConfig(job, {"simulator"}, /*cores=*/1);
  return FactsOf(config.model.kind).built_in() ? absl::OkStatus() : LayoutOf(config.model).status();
}

// Puts what this machine takes into the job, where the job asks for it.
absl::Status MeasureCost(Computation& computation, job::Job& job) {
  job::Simulation& simulation = *job.mutable_simulation();
  if (simulation.compute_us_per_sample() > 0) return absl::OkStatus();
  const uint32_t batch = job.training().batch_size();
  const absl::StatusOr<absl::Duration> step = computation.Measure(batch);
  if (!step.ok()) return step.status();
  simulation.set_compute_us_per_sample(absl::ToDoubleMicroseconds(*step) / batch);
  return absl::OkStatus();
}

// SIGINT and SIGTERM wait until they are asked for. Of the calling thread, and of those that it starts.
class StopSignals {
 public:
  StopSignals() : signals_(NotIgnored({SIGINT, SIGTERM})) { ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr); }
  // Asks the system once in so many calls.
  bool Came() {
    constexpr uint64_t kCallsBetween = 256;
    if (++calls_ % kCallsBetween != 0) return false;
    const timespec at_once{};
    return ::sigtimedwait(&signals_, nullptr, &at_once) > 0;
  }

 private:
  const sigset_t signals_;
  uint64_t calls_ = 0;
};

int Simulate(const Flags& flags, job::Job job) {
  StopSignals signals;
  const auto computation = MakeComputation(flags, job);
  if (!computation.ok()) return Fail(computation.status(), kFailed);
  if (absl::Status measured = MeasureCost(**computation, job); !measured.ok()) return Fail(measured, kWrongUse);
  const std::string path = !flags.run_folder.empty()        ? flags.run_folder
                           : !job.output().folder().empty() ? job.output().folder()
                                                            : scheduler::DefaultRunFolder(job.name(), absl::Now());
  // All that is written bears virtual time, so that equal runs leave equal files.
  const auto folder = scheduler::RunFolderWriter::Create(path, job, absl::UnixEpoch());
  if (!folder.ok()) return Fail(folder.status(), kFailed);

  View view(flags.quiet);
  absl::Status written;
  const auto write = [&](scheduler::Controller& controller, absl::Time now) {
    for (const std::string& event : controller.TakeEvents()) {
      written.Update((*folder)->WriteEvent(event, now));
      view.Event(event, now);
    }
    for (const scheduler::Report& report : controller.TakeReports()) written.Update((*folder)->Write(report, now));
  };
  SimulatedCluster cluster({job, (*folder)->path(), TimeoutsOf(job)}, **computation, write);
  cluster.Run([&] {
    view.Progress(cluster);
    if (signals.Came()) cluster.controller().StopJob("stopped by a signal", /*failed=*/false);
  });
  written.Update(
      (*folder)->WriteEpochs(cluster.controller().TakeEpochs().value_or(std::vector<scheduler::EpochFigures>())));
  written.Update((*folder)->WriteSummary(cluster.controller().Summary()));
  view.End(cluster, (*folder)->path());
  if (!written.ok()) return Fail(written, kFailed);
  return cluster.controller().state() == wire::JOB_DONE ? 0 : kFailed;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Run a job in virtual time, in one process, with the real engine, optimizers and gradients.",
               "slackline simulate");
  AddJobFile(app, flags.job_file);
  AddOverrides(app, flags.overrides, "cluster.workers=64");
  app.add_option("--run-folder", flags.run_folder,
                 "Folder for the results, new or empty. Default: output.folder, or runs/NAME-DATE-TIME")
      ->type_name("FOLDER");
  app.add_option("--threads", flags.threads,
                 "Threads for gradients; the results do not depend on them. Default: one per core")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--no-gradients", flags.no_gradients,
               "Simulate only the protocol. The model learns nothing, but thousands of workers fit");
  app.add_flag("--check", flags.check, "Only check whether the job can be simulated");
  app.add_flag("--quiet", flags.quiet, "Show only the result");
  app.set_version_flag("--version", VersionText("slackline-simulator"));
  SetHelp(app, kHelp);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUse;
  }
  // The view shows the events, with their virtual time.
  log::Initialise("simulator", log::Least::kWarning);
  const absl::StatusOr<job::Job> read = ReadJobFile(flags.job_file, flags.overrides);
  if (!read.ok()) return Fail(read.status(), kWrongUse);
  const job::Job job = Resolve(*read);
  if (job.output().log_format() == job::Output::JSON) log::WriteJson(job.name());
  if (absl::Status fits = CheckSimulation(job, !flags.no_gradients); !fits.ok()) return Fail(fits, kWrongUse);
  if (absl::Status model = worker::CheckJob(job); !model.ok()) return Fail(model, kWrongUse);
  if (!flags.check) return Simulate(flags, job);
  const absl::Status module = CheckModule(job);
  return module.ok() ? 0 : Fail(module, kWrongUse);
}

}  // namespace
}  // namespace slackline::simulator

int main(int argc, char** argv) {
  slackline::rpc::PrepareProcess();
  return slackline::FinishStdout(slackline::simulator::Main(argc, argv));
}
