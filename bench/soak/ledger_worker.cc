// A worker whose pushes can be counted in the weights: in the place of slackline-worker, for bench/soak/soak.py.
//
// Everything is slackline-worker's but the model. Each of kWorkersMax workers, by the number at the end of its name,
// has every kWorkersMax-th element, and each of its pushes, over all its lives, the next of them in every run of
// kWorkersMax x kSlots elements: its slot. The push adds 1 there (SGD with learning rate 1 on a gradient of -1), and
// nothing elsewhere. Where as many runs as shards are equally long, the final weights say of each push which shards
// have applied it, and how often.
//
// The ledger is a file of lines, written before the worker goes on:
//   life INCARNATION             a stream of pushes begins
//   begin SLOT                   a push is on its way; slots are counted from 0, over all lives
//   end APPLIED DISCARDED LOST SECONDS UNIX_SECONDS
//                                every shard has answered it; of LOST answered sub-pushes it has learnt meanwhile that
//                                they are gone
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/address.h"
#include "common/job/job_file.h"
#include "common/log/logging.h"
#include "common/metrics/metrics.h"
#include "common/rpc/channel.h"
#include "images/base/class_names.h"
#include "worker/base/step_memory.h"
#include "worker/group/local_group.h"
#include "worker/settings/job_config.h"
#include "worker/stop_signals.h"

namespace slackline::worker {
namespace {

constexpr uint64_t kWorkersMax = 4;
constexpr uint64_t kSlots = 16384;  // then they are used again
constexpr uint64_t kRuns = 4;
constexpr uint64_t kElements = kRuns * kWorkersMax * kSlots;

struct Flags {
  std::string job_file, scheduler, name;
  std::vector<std::string> overrides;
};

// What the checker believes must be in the file before anything follows from it; a process that is killed loses nothing
// of it.
class Ledger {
 public:
  explicit Ledger(const std::string& path) : file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600)) {}
  ~Ledger() { ::close(file_); }

  bool ok() const { return file_ >= 0; }
  void Write(const std::string& line) {
    const std::string text = line + "\n";
    if (::write(file_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      log::Error("the ledger cannot be written");
      log::Flush();
      std::abort();
    }
  }

 private:
  const int file_;
};

// The slot after those that earlier lives have used.
uint64_t NextSlot(const std::string& path) {
  std::ifstream in(path);
  uint64_t next = 0, slot = 0;
  for (std::string word; in >> word;) {
    if (word == "begin" && in >> slot) next = slot + 1;
  }
  return next;
}

class LedgerModel : public Model {
 public:
  LedgerModel(uint64_t number, uint64_t slot, absl::Duration step) : number_(number), next_(slot), step_(step) {}

  // Of the last step.
  uint64_t slot() const { return next_ - 1; }

  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  uint64_t elements() const override { return kElements; }
  uint64_t trained_elements() const override { return kElements; }
  absl::Span<float> parameters() override { return parameters_; }
  absl::Span<float> push() override { return push_; }
  void UsePush(absl::Span<float> memory) override { push_ = memory; }
  void UseParameters(absl::Span<float> memory) override { parameters_ = memory; }
  absl::StatusOr<StepResult> Step(const BatchView& batch, const Ready& ready) override {
    absl::Notification().WaitForNotificationWithTimeout(step_);
    std::fill(push_.begin(), push_.end(), 0.0F);
    for (uint64_t run = 0; run < kRuns; ++run) {
      push_[(run * kSlots + next_ % kSlots) * kWorkersMax + number_ % kWorkersMax] = -1;
    }
    ++next_;
    ready(0);
    return StepResult{.samples = batch.labels.size(), .loss = 1, .correct = 0};
  }
  absl::StatusOr<StepResult> Evaluate(const BatchView& batch, absl::Span<int64_t> predictions) override {
    for (int64_t& prediction : predictions) prediction = 0;
    return StepResult{.samples = batch.labels.size(), .loss = 1, .correct = 0};
  }

 private:
  const uint64_t number_;
  uint64_t next_;
  const absl::Duration step_;
  const std::vector<TensorInfo> tensors_ = {{.name = "counts", .shape = {kElements}}};
  std::vector<float> own_parameters_ = std::vector<float>(kElements), own_push_ = std::vector<float>(kElements);
  absl::Span<float> parameters_ = absl::MakeSpan(own_parameters_), push_ = absl::MakeSpan(own_push_);
};

class LedgerGroup : public LocalGroup {
 public:
  LedgerGroup(uint64_t number, uint64_t slot, absl::Duration step) : model_(number, slot, step) {}

  size_t devices() const override { return 1; }
  LedgerModel& model() override { return model_; }
  absl::StatusOr<StepResult> Step(const BatchView& batch, const Model::Ready& ready) override {
    return model_.Step(batch, ready);
  }

 private:
  LedgerModel model_;
};

// Notes what goes out and what comes back.
class LedgerClient : public Client {
 public:
  LedgerClient(std::unique_ptr<Client> client, const LedgerModel& model, Ledger& ledger)
      : client_(std::move(client)), model_(model), ledger_(ledger) {}

  absl::Status Seed(absl::Span<const float> parameters, absl::Duration timeout) override {
    return client_->Seed(parameters, timeout);
  }
  absl::Status Pull(absl::Span<float> parameters, absl::Duration timeout) override {
    return client_->Pull(parameters, timeout);
  }
  absl::Status OpenStep(absl::Span<const float> push) override { return client_->OpenStep(push); }
  void Ready(uint64_t from) override { client_->Ready(from); }
  absl::Status CommitStep(const PushInfo& info, absl::Span<float> parameters) override {
    ledger_.Write(absl::StrCat("begin ", model_.slot()));
    begun_ = absl::Now();
    return client_->CommitStep(info, parameters);
  }
  absl::Status BeginStep(absl::Span<const float> push, const PushInfo& info, absl::Span<float> parameters) override {
    const absl::Status opened = OpenStep(push);
    return opened.ok() ? CommitStep(info, parameters) : opened;
  }
  absl::StatusOr<StepReport> FinishStep(absl::Duration timeout) override {
    absl::StatusOr<StepReport> report = client_->FinishStep(timeout);
    if (report.ok()) {
      const absl::Time now = absl::Now();
      ledger_.Write(absl::StrFormat("end %d %d %d %.6f %.6f", report->shards_applied, report->shards_discarded,
                                    report->lost, absl::ToDoubleSeconds(now - begun_),
                                    absl::ToDoubleSeconds(now - absl::UnixEpoch())));
    }
    return report;
  }
  size_t steps_in_flight() const override { return client_->steps_in_flight(); }
  absl::StatusOr<StepReport> Step(absl::Span<const float> push, const PushInfo& info, absl::Span<float> parameters,
                                  absl::Duration timeout) override {
    const absl::Status begun = BeginStep(push, info, parameters);
    return begun.ok() ? FinishStep(timeout) : begun;
  }
  void Close(const std::string& reason, absl::Duration timeout) override { client_->Close(reason, timeout); }
  void Remap(const ShardMap& map) override { client_->Remap(map); }
  void Cancel(const std::string& reason) override { client_->Cancel(reason); }
  Clock64 clock() const override { return client_->clock(); }

 private:
  const std::unique_ptr<Client> client_;
  const LedgerModel& model_;
  Ledger& ledger_;
  absl::Time begun_;
};

int Fail(const absl::Status& status) {
  log::Error(status.message());
  log::Flush();
  return 1;
}

// The digits at the end of the name.
uint64_t NumberOf(const std::string& name) {
  uint64_t number = 0;
  const size_t dash = name.rfind('-');
  return dash != std::string::npos && absl::SimpleAtoi(name.substr(dash + 1), &number) ? number : 0;
}

int Work(const Flags& flags, const job::Job& job) {
  WorkerConfig config = MakeWorkerConfig(job, {flags.name}, 1);
  const uint64_t number = NumberOf(flags.name);
  if (number == 0 || number > kWorkersMax) {
    return Fail(absl::InvalidArgumentError(
        absl::StrCat("the name is '", flags.name, "'; allowed is NAME-1 to NAME-", kWorkersMax)));
  }
  const std::string path = absl::StrCat("ledger.", flags.name);  // in the working directory
  const uint64_t slot = NextSlot(path);
  Ledger ledger(path);
  if (!ledger.ok()) return Fail(absl::UnavailableError("cannot open the ledger"));
  const auto train = images::Dataset::ReadIdx(job.data().path(), "train", job.data().train_images_max());
  if (!train.ok()) return Fail(train.status());
  const auto test = images::Dataset::ReadIdx(job.data().path(), "t10k", 500);
  if (!test.ok()) return Fail(test.status());
  const auto class_names = images::ReadClassNames(job.data().path(), config.model.classes);
  if (!class_names.ok()) return Fail(class_names.status());

  LedgerGroup group(number, slot, absl::Milliseconds(2));
  slackline::Metrics metrics({{"job", job.name()}, {"process", flags.name}});
  TrainerMetrics trainer_metrics(metrics);
  SchedulerLink::Options link_options;
  link_options.address = flags.scheduler;
  link_options.name = flags.name;
  link_options.job_fingerprint = Fingerprint(job);
  link_options.timeouts = config.trainer.timeouts;
  link_options.silence_max = config.scheduler_return;
  link_options.join_max = config.trainer.server_return;
  link_options.tensors = group.model().tensors();
  link_options.train_samples = train->size();
  link_options.test_samples = test->size();
  const auto link = SchedulerLink::Create(link_options);
  images::Prefetcher prefetcher(*train, config.normalisation, config.prefetch_batches);
  Evaluator evaluator(*test, {.normalisation = config.normalisation, .batch_size = 500, .class_names = *class_names});
  const StepMemory push_memory(config.trainer.window, kElements, config.trainer.same_host == SameHost::kSharedMemory);
  const StepMemory parameter_memory(Trainer::ParameterMemories(config.trainer), kElements, /*shared=*/false);
  const SteadyTime time;
  Trainer::Connect connect = [&ledger, &group](const ClientOptions& options,
                                               const ShardMap& map) -> absl::StatusOr<std::unique_ptr<Client>> {
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Create(options, map);
    if (!client.ok()) return client;
    if (!options.reader) ledger.Write(absl::StrCat("life ", options.incarnation.value()));
    return std::make_unique<LedgerClient>(*std::move(client), group.model(), ledger);
  };
  Trainer trainer(config.trainer, {.time = time,
                                   .link = *link,
                                   .group = group,
                                   .train = *train,
                                   .prefetcher = prefetcher,
                                   .evaluator = evaluator,
                                   .metrics = trainer_metrics,
                                   .push_memory = push_memory.parts(),
                                   .parameter_memory = parameter_memory.parts(),
                                   .push_segment = push_memory.segment(),
                                   .connect = std::move(connect)});
  const StopSignals signals(
      [&trainer](const std::string& name) { trainer.Stop(absl::OkStatus(), absl::StrCat("told to stop by ", name)); });
  const absl::Status status = trainer.Run();
  if (!status.ok()) return Fail(status);
  log::Info("done");
  log::Flush();
  return 0;
}

int Main(int argc, char** argv) {
  rpc::PrepareProcess();
  rpc::SilenceGrpcLog();
  HoldStopSignals();
  Flags flags;
  CLI::App app("A worker whose pushes can be counted in the weights.", "ledger-worker");
  app.add_option("JOB.yaml", flags.job_file, "The job file")->required();
  app.add_option("--scheduler", flags.scheduler, "As slackline-worker has it")->required()->check(PlaceMistake);
  app.add_option("--set", flags.overrides, "As slackline-worker has it")->take_all()->allow_extra_args(false);
  app.add_option("--name", flags.name, "NAME-1, NAME-2 ...")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  log::Initialise(flags.name);
  const absl::StatusOr<job::Job> job = ReadJobFile(flags.job_file, flags.overrides);
  if (!job.ok()) return Fail(job.status());
  return Work(flags, Resolve(*job));
}

}  // namespace
}  // namespace slackline::worker

int main(int argc, char** argv) { return slackline::worker::Main(argc, argv); }
