// slackline-worker: computes gradients for one job. Exit codes: 0 done or told to stop, 1 failed, 2 wrong use.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/address.h"
#include "common/http/http_post.h"
#include "common/job/command_options.h"
#include "common/job/job_file.h"
#include "common/job/job_kinds.h"
#include "common/log/log_format.h"
#include "common/log/logging.h"
#include "common/metrics/metrics.h"
#include "common/metrics/process_metrics.h"
#include "common/metrics/serve_metrics.h"
#include "common/network/interfaces.h"
#include "common/network/on_this_machine.h"
#include "common/process/thread_cores.h"
#include "common/rpc/channel.h"
#include "common/security/security.h"
#include "common/text/help.h"
#include "common/text/member_name.h"
#include "common/text/version_text.h"
#include "common/time/clock.h"
#include "images/prepared/spread_shards.h"
#include "worker/base/step_memory.h"
#include "worker/base/trace_sender.h"
#include "worker/cuda/gpus.h"
#include "worker/evaluate_weights.h"
#include "worker/machine/devices.h"
#include "worker/metering.h"
#include "worker/model/weights/load_weights.h"
#include "worker/own_cores.h"
#include "worker/scheduler_link/scheduler_images.h"
#include "worker/settings/container.h"
#include "worker/settings/job_checks.h"
#include "worker/settings/job_config.h"
#include "worker/settings/loaded_job.h"
#include "worker/stop_signals.h"

namespace slackline::worker {
namespace {

struct Flags : MemberOptions {
  std::optional<uint32_t> group = {};
  std::string seat = {};
  uint32_t container_cpus = 0;
  bool check_devices = false;
  WeightsToEvaluate evaluate = {};
};

constexpr int kFailed = 1;
constexpr int kWrongUse = 2;
constexpr absl::Duration kTracePostMax = absl::Seconds(5);

int Fail(const absl::Status& status, int code) {
  log::Error(status.message());
  log::Flush();
  return code;
}

SchedulerLink::Options LinkOptions(const Flags& flags, const job::Job& job, const WorkerConfig& config) {
  SchedulerLink::Options options;
  options.address = flags.scheduler;
  options.name = flags.name;
  options.topology = flags.topology;
  options.group = flags.group.value_or(0);
  options.job_fingerprint = Fingerprint(job);
  options.timeouts = config.trainer.timeouts;
  options.silence_max = config.scheduler_return;
  options.join_max = config.trainer.server_return;
  return options;
}

// A job with groups has no devices of its own.
absl::Status CheckGroupFlag(const Flags& flags, const job::Job& job) {
  const int groups = job.worker().groups_size();
  if (flags.group && groups == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--group: found ", *flags.group, "; allowed is none: the job has no worker.groups"));
  }
  if (groups > 0 && (!flags.group || *flags.group >= static_cast<uint32_t>(groups))) {
    return absl::InvalidArgumentError(absl::StrCat("--group: found ", flags.group ? absl::StrCat(*flags.group) : "none",
                                                   "; allowed is 0 to ", groups - 1,
                                                   ", which of worker.groups this is"));
  }
  return absl::OkStatus();
}

// Where the job file says what this computes on; in a container its numbers are others.
std::string DevicesKey(const Flags& flags) {
  if (!flags.group) return "worker.devices";
  return absl::StrCat("worker.groups[", *flags.group, "].devices",
                      flags.container_cpus > 0 ? ", counted from cuda:0 in the group's container" : "");
}

std::string Names(const std::vector<Device>& devices) {
  return absl::StrJoin(devices, ", ", [](std::string* out, const Device& device) { *out += ToString(device); });
}

absl::StatusOr<std::unique_ptr<LocalGroup>> MakeGroup(const ModelSpec& spec, uint64_t seed,
                                                      const std::vector<Device>& devices, const GroupOptions& options) {
  if (devices.front().kind == Device::Kind::kCuda) return gpu::MakeGroup(spec, seed, devices, options);
  return LocalGroup::Create(spec, seed, std::vector<std::string>(devices.size(), ToString(devices.front())), options);
}

// Null if the trace is neither written nor sent.
std::unique_ptr<Trace> MakeTrace(const WorkerConfig& config, const std::string& name) {
  if (config.trace.empty() && config.trace_otlp.empty()) return nullptr;
  return std::make_unique<Trace>(name, config.trace.empty() ? 0 : Trace::kEventsMax,
                                 config.trace_otlp.empty() ? 0 : Trace::kNewsMax);
}

// Null if the trace is not sent.
std::unique_ptr<TraceSender> SendTrace(Trace* trace, const WorkerConfig& config, const std::string& name,
                                       const std::string& job) {
  if (config.trace_otlp.empty()) return nullptr;
  const std::string address = absl::StrCat(absl::StripSuffix(config.trace_otlp, "/"), "/v1/traces");
  const auto post = std::make_shared<HttpPost>(address, "application/json", kTracePostMax);
  return std::make_unique<TraceSender>(*trace, name, job, [post](const std::string& json) { return post->Send(json); });
}

void WriteTrace(Trace& trace, const std::string& path) {
  const absl::Status written = trace.Write(path);
  if (!written.ok()) return log::Error(written.message());
  log::Info("worker.trace: the trace of this worker is in ", path);
}

// What model.weights says; null where it says nothing.
std::function<absl::Status(absl::Span<float>)> BeginWith(const std::string& path, LocalGroup& group) {
  if (path.empty()) return nullptr;
  return [path, &group](absl::Span<float> parameters) -> absl::Status {
    const auto kept = LoadWeights(path, group.model().tensors(), parameters);
    if (!kept.ok()) return absl::Status(kept.status().code(), absl::StrCat("model.weights: ", kept.status().message()));
    log::Info(
        "begins with the weights of ", path,
        kept->empty() ? "" : absl::StrCat(", but for ", absl::StrJoin(*kept, " and "), ": other classes, or none"));
    return absl::OkStatus();
  };
}

// How other nodes reach this one; empty: at what is listened on.
absl::StatusOr<std::string> HostForOthers(const job::Network& network) {
  const std::string& listen = network.listen();
  const bool everywhere = listen == "0.0.0.0" || listen == "::" || listen == "[::]";
  if (!network.advertise().empty() || !everywhere) return network.advertise();
  return network::AddressOfNode("", "");
}

// With data.cache.peers; else null.
absl::StatusOr<std::unique_ptr<images::ImagePeers>> StartPeers(const Flags& flags, const job::Job& job,
                                                               const WorkerConfig& config,
                                                               const security::Security& security) {
  if (!config.data.settings.cache().peers()) return nullptr;
  const Timeouts& timeouts = config.trainer.timeouts;
  const absl::StatusOr<std::string> host = HostForOthers(job.network());
  if (!host.ok()) return host.status();
  return images::ImagePeers::Start(
      {.serve = {.listen = job.network().listen(), .ports = job.network().ports(), .advertise = *host},
       .beat_every = timeouts.worker_dead() / 4,
       .silence_max = absl::Seconds(config.data.settings.http_timeout_s())},
      MakeImageBoard({.scheduler = flags.scheduler,
                      .protection = security.To(security::Role::kScheduler),
                      .job_fingerprint = Fingerprint(job),
                      .timeouts = timeouts}));
}

void WarnOfSmallFiles(const std::vector<uint32_t>& file_samples, uint32_t batch_size) {
  if (file_samples.empty()) return;
  const uint32_t most = *std::max_element(file_samples.begin(), file_samples.end());
  if (most >= batch_size) return;
  log::Warning("data.cache.spread: the files of images have at most ", most, " images each, training.batch_size is ",
               batch_size,
               ": a batch has images of one file, so batches are smaller. `slackline prepare "
               "--shard-images` makes larger files");
}

// Until there is a trainer, which leaves in good order: nobody waits for this process yet, and what it may be doing,
// such as copying images, can take long. All that it writes may be left in part.
std::unique_ptr<const StopSignals> EndAtOnce(const Flags& flags, int code) {
  return std::make_unique<const StopSignals>([supervised = flags.supervised, code](const std::string& name) {
    if (supervised && name == "SIGTERM") return;
    log::Info("this worker got ", name, " before it joined, and stops");
    log::Flush();
    std::_Exit(code);
  });
}

int Work(const Flags& flags, const job::Job& job) {
  std::unique_ptr<const StopSignals> until_trainer = EndAtOnce(flags, 0);
  const job::Job seen = flags.container_cpus > 0 ? InContainer(job, flags.group.value_or(0)) : job;
  WorkerConfig config =
      MakeWorkerConfig(seen, {flags.name, flags.group.value_or(0)}, std::thread::hardware_concurrency());
  config.data.on_demand = true;
  if (flags.container_cpus > 0) ShareProcessors(flags.container_cpus, config);
  const GpusHere gpus = gpu::FindGpus();
  const absl::StatusOr<CorePlan> cores = TakeCores(seen, {.group = flags.group.value_or(0),
                                                          .seat = flags.seat,
                                                          .container_cpus = flags.container_cpus,
                                                          .gpus = static_cast<uint32_t>(gpus.names.size()),
                                                          .gpu_addresses = gpu::PciAddresses(AllOf(gpus))});
  if (!cores.ok()) return Fail(cores.status(), kWrongUse);
  config.trainer.exchange_cores = cores->others;
  if (config.threads_by_cores && !cores->compute.empty()) {
    const auto cpus = static_cast<uint32_t>(std::max<size_t>(1, config.devices.size()));
    config.compute_threads = std::max(1u, static_cast<uint32_t>(cores->compute.size()) / cpus);
  }
  const auto security = security::Security::Open(job, security::Role::kWorker);
  if (!security.ok()) return Fail(security.status(), kWrongUse);
  config.trainer.protection = security->To(security::Role::kServer);
  const auto devices = ResolveDevices(config.devices, gpus, DevicesKey(flags));
  if (!devices.ok()) return Fail(devices.status(), kWrongUse);
  if (absl::Status parts = CheckParts(config, devices->size()); !parts.ok()) return Fail(parts, kWrongUse);
  power::IdlePower idle = MeasureIdle(config.metering, *devices);
  const auto peers = StartPeers(flags, job, config, *security);
  if (!peers.ok()) return Fail(peers.status(), kFailed);
  const absl::StatusOr<LoadedJob> data = LoadJob(config, peers->get());
  if (!data.ok()) return Fail(data.status(), kFailed);
  SetComputeThreads(config.compute_threads);
  const auto trace = MakeTrace(config, flags.name);
  // Threads of devices, and of LibTorch, stay where they are made.
  if (absl::Status bound = BindThread(cores->compute); !bound.ok()) return Fail(bound, kFailed);
  const auto group = MakeGroup(data->spec, config.seed, *devices,
                               {.timeouts = config.trainer.timeouts,
                                .buckets = {},
                                .stages = config.stages,
                                .micro_batches = config.micro_batches,
                                .trace = trace.get()});
  if (!group.ok()) return Fail(group.status(), kFailed);
  if (absl::Status bound = BindThread(cores->others); !bound.ok()) return Fail(bound, kFailed);
  auto trace_sender = SendTrace(trace.get(), config, flags.name, job.name());
  log::Info("LibTorch ", LibTorchVersion(), ", ", Names(*devices), " with ", config.compute_threads, " thread(s), ",
            (*group)->model().elements(), " parameters, ", data->train.size(), " training images");
  auto push_runs = MakeCodecRuns(config.push_codecs, (*group)->model().tensors());
  if (!push_runs.ok()) return Fail(push_runs.status(), kWrongUse);
  config.trainer.push_runs = *std::move(push_runs);

  slackline::Metrics metrics(ProcessLabels(job.name(), flags.name, "worker"));
  TrainerMetrics trainer_metrics(metrics);
  const absl::StatusOr<std::string> served = ServeMetrics(job.network(), metrics);
  if (!served.ok()) return Fail(served.status(), kFailed);
  metrics.SetMissing("does not train yet: waits for the scheduler, the servers, or other workers");

  if (config.model.cuda_graphs && devices->front().kind == Device::Kind::kCpu) {
    log::Warning("worker.cuda_graphs: this worker computes on CPUs, and records no step");
  }
  const auto energy = StartMetering(config.metering, *devices, metrics, std::move(idle));
  SchedulerLink::Options link_options = LinkOptions(flags, job, config);
  link_options.protection = security->To(security::Role::kScheduler);
  link_options.tensors = (*group)->model().tensors();
  link_options.metrics_address = *served;
  link_options.on_live = [&metrics] { metrics.SetMissing(""); };
  link_options.energy = energy.get();
  link_options.train_samples = data->train.size();
  link_options.test_samples = data->test.size();
  link_options.data_fingerprint = data->fingerprint;
  link_options.block_samples = data->train.BlockSamples();
  WarnOfSmallFiles(link_options.block_samples, config.trainer.batch_size);
  if (const std::shared_ptr<images::SpreadShards> spread = data->spread; spread != nullptr) {
    link_options.images_address = spread->address();
    link_options.images_borrowed = [spread] { return spread->Borrowed(); };
  }
  const auto link = SchedulerLink::Create(link_options);
  images::Prefetcher prefetcher(data->train, config.normalisation, config.prefetch_batches, config.augment, config.seed,
                                config.data_threads);
  Evaluator evaluator(data->test, {.normalisation = config.normalisation,
                                   .batch_size = config.evaluation_batch_size,
                                   .class_names = data->class_names,
                                   .data_threads = config.data_threads,
                                   .batch_max = config.trainer.timeouts.stall,
                                   .neighbours = data->spec.self_supervised.on() ? &data->train : nullptr,
                                   .neighbours_max = config.neighbours_max,
                                   .last_test = data->last_test ? &*data->last_test : nullptr});
  const StepMemory push_memory(config.trainer.window, (*group)->model().elements(),
                               config.trainer.same_host == SameHost::kSharedMemory);
  const StepMemory parameter_memory(Trainer::ParameterMemories(config.trainer), (*group)->model().elements(),
                                    /*shared=*/false);
  const SteadyTime time;
  // One device, and its computations run on the trainer's thread.
  const ThreadTime thread_time;
  const bool alone_on_cpu = *devices == std::vector<Device>{Device{}};
  if (config.trainer.slowdown > 1)
    log::Warning("worker.slowdown makes each step ", config.trainer.slowdown, " times as long");
  Trainer trainer(config.trainer, {.time = time,
                                   .link = *link,
                                   .group = **group,
                                   .train = data->train,
                                   .prefetcher = prefetcher,
                                   .evaluator = evaluator,
                                   .metrics = trainer_metrics,
                                   .push_memory = push_memory.parts(),
                                   .parameter_memory = parameter_memory.parts(),
                                   .push_segment = push_memory.segment(),
                                   .begin_with = BeginWith(config.weights, **group),
                                   .device_time = alone_on_cpu ? &thread_time : nullptr,
                                   .trace = trace.get(),
                                   .energy = energy.get()});
  until_trainer.reset();
  const StopSignals signals([&trainer, supervised = flags.supervised](const std::string& name) {
    if (supervised && name == "SIGTERM") return;
    trainer.Stop(absl::OkStatus(), absl::StrCat("told to stop by ", name));
  });
  if (absl::Status bound = BindThread(cores->compute); !bound.ok()) return Fail(bound, kFailed);
  const absl::Status status = trainer.Run();
  // Batches that nobody wants any more must not hold up the end.
  if (data->spread != nullptr) data->spread->Stop();
  if (!config.trace.empty()) WriteTrace(*trace, config.trace);
  trace_sender.reset();
  if (const absl::Status given_up = (*group)->given_up(); !given_up.ok()) {
    Fail(given_up, kFailed);
    // A device hangs, in memory of this function: nothing can be taken down around it. The job has been told.
    std::_Exit(kFailed);
  }
  if (!status.ok()) return Fail(status, kFailed);
  log::Info("done");
  log::Flush();
  return 0;
}

// What the files of evaluations name, the user has named: a mistake of theirs.
int Evaluate(const Flags& flags, const job::Job& job) {
  const std::unique_ptr<const StopSignals> signals = EndAtOnce(flags, kFailed);
  WorkerConfig config =
      MakeWorkerConfig(job, {flags.name, flags.group.value_or(0)}, std::thread::hardware_concurrency());
  config.data.on_demand = true;
  const absl::Status status = EvaluateWeights(flags.evaluate, std::move(config));
  if (status.ok()) return 0;
  return Fail(status, absl::IsInvalidArgument(status) || absl::IsNotFound(status) ? kWrongUse : kFailed);
}

// Of all groups, where the job has groups.
int CheckDevices(const job::Job& job) {
  const GpusHere gpus = gpu::FindGpus();
  const auto groups = static_cast<uint32_t>(job.worker().groups_size());
  for (uint32_t group = 0; group < std::max(1U, groups); ++group) {
    const WorkerConfig config = MakeWorkerConfig(job, {"worker", group}, /*cores=*/1);
    const std::string key = groups == 0 ? "worker.devices" : absl::StrCat("worker.groups[", group, "].devices");
    const auto devices = ResolveDevices(config.devices, gpus, key);
    const absl::Status here = devices.ok() ? CheckParts(config, devices->size()) : devices.status();
    if (here.ok()) continue;
    std::printf("%s\n", std::string(here.message()).c_str());
    return kFailed;
  }
  return 0;
}

int Main(int argc, char** argv) {
  rpc::PrepareProcess();
  rpc::SilenceGrpcLog();
  HoldStopSignals();
  Flags flags;
  flags.name = absl::StrCat("worker-", ::getpid());
  CLI::App app("Worker of one job: computes gradients and pushes them to the servers.", "slackline-worker");
  AddMemberOptions(app, flags, "Name in logs, metrics and on the status page");
  app.add_option("--group", flags.group, "Index in worker.groups of this worker's group, from 0. For jobs with groups")
      ->type_name("NUMBER");
  CLI::Option* const seat =
      app.add_option(
             "--seat", flags.seat,
             "Index of this worker among the job's workers on this machine, from 0, and their number. For worker.cores")
          ->type_name("NUMBER/WORKERS");
  app.add_option(
         "--container", flags.container_cpus,
         "This is the only worker in a container with so many processors. It takes the GPUs of its group in their "
         "order. It takes all cores that it sees, if these are no more than PROCESSORS")
      ->type_name("PROCESSORS")
      ->check(CLI::Range(1, 65536))
      ->excludes(seat);
  app.add_flag("--check-devices", flags.check_devices,
               "Only check whether this machine has the GPUs that the job names");
  CLI::Option* const weights =
      app.add_option("--evaluate", flags.evaluate.path,
                     "Measure these weights on the job's images, then exit; for `slackline evaluate`")
          ->type_name("FILE");
  app.add_option("--split", flags.evaluate.split, "Images to measure the weights on")
      ->needs(weights)
      ->check(CLI::IsMember({"train", "validation", "test"}));
  app.add_option("--out", flags.evaluate.out, "Folder for report.json and confusion.csv")
      ->needs(weights)
      ->type_name("FOLDER");
  weights->needs("--out");
  app.set_version_flag("--version", VersionText("slackline-worker"));
  SetHelp(app, {.example = "slackline-worker job.yaml --scheduler runs/first/scheduler.address",
                .most_used = "--scheduler --name --set",
                .groups = {{"Place", "--topology --group --seat --container"},
                           {"Supervision", "--supervised"},
                           {"Check or measure, then exit", "--check-devices --evaluate --split --out"}},
                .text = "Exit codes: 0 done or stopped; 1 failed; 2 wrong use."});
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUse;
  }
  log::Initialise(flags.name);
  const absl::StatusOr<job::Job> job = ReadJobFile(flags.job_file, flags.overrides);
  if (!job.ok()) return Fail(job.status(), kWrongUse);
  if (RunsScripts(*job)) {
    return Fail(
        absl::InvalidArgumentError("model.kind: found external; allowed is a model that is known here: the workers of "
                                   "this job are scripts (slackline launch)"),
        kWrongUse);
  }
  if (job->output().log_format() == job::Output::JSON) log::WriteJson(job->name());
  job::Job resolved = Resolve(*job);
  if (flags.check_devices) return CheckDevices(resolved);
  if (!flags.evaluate.path.empty()) return Evaluate(flags, resolved);
  if (flags.scheduler.empty()) {
    return Fail(absl::InvalidArgumentError("--scheduler is required"), kWrongUse);
  }
  if (absl::Status group = CheckGroupFlag(flags, resolved); !group.ok()) return Fail(group, kWrongUse);
  const absl::StatusOr<job::Network> network = network::OnThisMachine(resolved.network());
  if (!network.ok()) return Fail(network.status(), kWrongUse);
  *resolved.mutable_network() = *network;
  const absl::Status allowed = security::CheckListening(network->listen(), resolved.security());
  if ((network->metrics() || resolved.data().cache().peers()) && !allowed.ok()) return Fail(allowed, kWrongUse);
  return Work(flags, resolved);
}

}  // namespace
}  // namespace slackline::worker

int main(int argc, char** argv) { return slackline::worker::Main(argc, argv); }
