#include "worker/embedded/embedded_job.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/address.h"
#include "common/job/job_file.h"
#include "common/job/optimizer_config.h"
#include "common/job/script_optimizer.h"
#include "common/metrics/metrics.h"
#include "common/metrics/process_metrics.h"
#include "common/metrics/serve_metrics.h"
#include "common/network/on_this_machine.h"
#include "common/security/security.h"
#include "common/text/member_name.h"
#include "worker/base/step_memory.h"
#include "worker/evaluation/evaluation.h"
#include "worker/model/weights/safetensors.h"
#include "worker/settings/job_config.h"
#include "worker/settings/push_codecs.h"

namespace slackline::worker {
namespace {

namespace fs = std::filesystem;

absl::Status Refused(const std::string& key, const std::string& found, const std::string& allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat(key, ": found ", found, "; allowed is ", allowed, " where the worker is a script"));
}

absl::Status CheckSettings(const job::Job& job, const WorkerConfig& config) {
  if (config.trainer.local.epochs > 0) return Refused("local.epochs", absl::StrCat(config.trainer.local.epochs), "0");
  if (config.trainer.slowdown > 1) {
    return Refused("worker.slowdown", absl::StrCat(config.trainer.slowdown), "none for this worker");
  }
  return security::CheckListening(job.network().metrics() ? job.network().listen() : "127.0.0.1", job.security());
}

absl::Status CheckOptions(const EmbeddedJob::Options& options) {
  if (const std::string mistake = MemberNameMistake(options.name); !mistake.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("name of the worker: ", mistake));
  }
  if (const std::string mistake = PlaceMistake(options.scheduler); !mistake.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("address of the scheduler: ", mistake));
  }
  return absl::OkStatus();
}

class OpenedJob : public EmbeddedJob {
 public:
  OpenedJob(Options options, job::Job job, security::Security security, WorkerConfig config)
      : options_(std::move(options)),
        job_(std::move(job)),
        security_(std::move(security)),
        config_(std::move(config)),
        settings_{.name = job_.name(),
                  .seed = config_.seed,
                  .batch_size = config_.trainer.batch_size,
                  .accumulate = config_.trainer.accumulate,
                  .epochs = job_.training().epochs(),
                  .threads = config_.compute_threads,
                  .window = config_.trainer.window,
                  .local_steps = config_.trainer.local.steps,
                  .names_lr = job_.optimizer().has_lr(),
                  .optimizer = MakeOptimizerConfig(job_, /*samples_per_epoch=*/0),
                  .group_rules = config_.model.groups},
        metrics_(ProcessLabels(job_.name(), options_.name, "worker")),
        trainer_metrics_(metrics_) {}

  const Settings& settings() const override { return settings_; }

  absl::Status SetOptimizer(const ScriptOptimizer& optimizer) override {
    if (worker_) return absl::FailedPreconditionError("this worker has its model already");
    absl::StatusOr<job::Optimizer> script = ReadScriptOptimizer(optimizer.settings, optimizer.groups);
    if (!script.ok()) return script.status();
    absl::StatusOr<job::Optimizer> whole = WithScriptOptimizer(job_, *script);
    if (!whole.ok()) return whole.status();
    job::Job job = job_;
    *job.mutable_optimizer() = *std::move(whole);
    settings_.optimizer = MakeOptimizerConfig(job, /*samples_per_epoch=*/0);
    settings_.group_rules.clear();
    for (const ScriptGroup& group : optimizer.groups) settings_.group_rules.push_back({.match = group.name});
    script_ = std::make_shared<const job::Optimizer>(*std::move(script));
    groups_ = optimizer.members;
    return absl::OkStatus();
  }

  absl::Status Open(const Model& model) override {
    if (worker_) return absl::FailedPreconditionError("this worker has its model already");
    tensors_ = model.tensors;
    uint64_t elements = 0;
    for (TensorInfo& tensor : tensors_) {
      tensor.offset = elements;
      elements += tensor.elements();
    }
    if (model.parameters.size() != settings_.window) {
      return absl::InvalidArgumentError(absl::StrCat("the model has ", model.parameters.size(),
                                                     " flat vectors, allowed is wire.window: ", settings_.window));
    }
    for (const absl::Span<float> part : model.parameters) {
      if (elements > 0 && elements == part.size()) continue;
      return absl::InvalidArgumentError(absl::StrCat("the model's ", tensors_.size(), " tensors have ", elements,
                                                     " elements, its flat vector ", part.size()));
    }
    auto push_runs = MakeCodecRuns(config_.push_codecs, tensors_);
    if (!push_runs.ok()) return push_runs.status();
    const absl::StatusOr<std::string> served = ServeMetrics(job_.network(), metrics_);
    if (!served.ok()) return served.status();
    metrics_.SetMissing("does not train yet: waits for the scheduler, the servers, or other workers");
    push_.emplace(settings_.window, elements, config_.trainer.same_host == SameHost::kSharedMemory);
    MakeLink(model, *served);
    worker_.emplace(EmbeddedWorker::Options{.seed = config_.seed,
                                            .tensors = tensors_,
                                            .train_samples = model.train_samples,
                                            .stream = model.stream,
                                            .batch_size = config_.trainer.batch_size,
                                            .chunk_bytes = config_.trainer.chunk_bytes,
                                            .push_runs = *std::move(push_runs),
                                            .pull_encoding = config_.trainer.pull_encoding,
                                            .same_host = config_.trainer.same_host,
                                            .protection = security_.To(security::Role::kServer),
                                            .timeouts = config_.trainer.timeouts,
                                            .window = settings_.window,
                                            .predicted = config_.trainer.predicted,
                                            .server_return = config_.trainer.server_return},
                    EmbeddedWorker::Parts{.time = time_,
                                          .link = *link_,
                                          .metrics = trainer_metrics_,
                                          .parameters = model.parameters,
                                          .push = push(),
                                          .push_segment = push_->segment()});
    return absl::OkStatus();
  }

  EmbeddedWorker& worker() override { return *worker_; }
  const std::vector<absl::Span<float>>& push() override { return push_->parts(); }

  absl::Status WriteWeights(EvaluationResult& result) override {
    const fs::path folder(result.work.run_folder);
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) return absl::UnavailableError(absl::StrCat("cannot make ", folder.string(), ": ", error.message()));
    const absl::Status written =
        WriteSafetensors(folder / "model.safetensors", tensors_, worker_->parameters(), WeightsMetadata(result));
    if (written.ok()) result.files = {"model.safetensors"};
    return written;
  }

 private:
  void MakeLink(const Model& model, const std::string& metrics_address) {
    SchedulerLink::Options link;
    link.address = options_.scheduler;
    link.protection = security_.To(security::Role::kScheduler);
    link.name = options_.name;
    link.job_fingerprint = Fingerprint(job_);
    link.tensors = tensors_;
    link.optimizer = script_;
    link.tensor_groups = groups_;
    link.train_samples = model.train_samples;
    link.test_samples = model.test_samples;
    link.metrics_address = metrics_address;
    link.topology = options_.topology;
    link.on_live = [this] { metrics_.SetMissing(""); };
    link.timeouts = config_.trainer.timeouts;
    link.silence_max = config_.scheduler_return;
    link.join_max = config_.trainer.server_return;
    link_ = SchedulerLink::Create(link);
  }

  const Options options_;
  const job::Job job_;  // resolved
  const security::Security security_;
  const WorkerConfig config_;
  Settings settings_;
  std::shared_ptr<const job::Optimizer> script_;  // null: the script gives no settings
  std::vector<uint32_t> groups_;
  const SteadyTime time_;
  slackline::Metrics metrics_;
  TrainerMetrics trainer_metrics_;
  std::vector<TensorInfo> tensors_;
  std::optional<StepMemory> push_;
  std::unique_ptr<SchedulerLink> link_;
  std::optional<EmbeddedWorker> worker_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<EmbeddedJob>> EmbeddedJob::Read(const Options& options) {
  if (const absl::Status status = CheckOptions(options); !status.ok()) return status;
  // One port can serve one process: the one in the job file is the scheduler's.
  std::vector<std::string> overrides = {"network.metrics_port=0"};
  overrides.insert(overrides.end(), options.overrides.begin(), options.overrides.end());
  const absl::StatusOr<job::Job> read = ReadJobFile(options.job_file, overrides);
  if (!read.ok()) return read.status();
  job::Job job = Resolve(*read);
  const absl::StatusOr<job::Network> network = network::OnThisMachine(job.network());
  if (!network.ok()) return network.status();
  *job.mutable_network() = *network;
  WorkerConfig config = MakeWorkerConfig(job, {options.name}, std::thread::hardware_concurrency());
  if (const absl::Status status = CheckSettings(job, config); !status.ok()) return status;
  absl::StatusOr<security::Security> security = security::Security::Open(job, security::Role::kWorker);
  if (!security.ok()) return security.status();
  return std::make_unique<OpenedJob>(options, std::move(job), *std::move(security), std::move(config));
}

}  // namespace slackline::worker
