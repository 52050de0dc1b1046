#include "simulator/torch_computation.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/time/clock.h"
#include "simulator/step_task.h"
#include "worker/base/gradient_norm.h"
#include "worker/evaluation/evaluator.h"
#include "worker/settings/loaded_job.h"

namespace slackline::simulator {
namespace {

using images::Batch;
using images::Dataset;
using worker::Model;

void CopyWeights(const Weights& weights, absl::Span<float> parameters) {
  uint64_t begin = 0;
  for (const ps::SliceView& view : weights) {
    view.CopyTo(parameters.subspan(begin, view.elements()));
    begin += view.elements();
  }
}

struct Task {
  StepTask step;
  std::promise<absl::StatusOr<std::shared_ptr<const Gradient>>> done;
};

// Memory of gradients that nobody needs any more, for those that follow.
//
// Thread-safety: safe.
class Spares {
 public:
  explicit Spares(uint64_t elements) : elements_(elements) {}

  AlignedFloats Take() {
    {
      absl::MutexLock lock(&mutex_);
      if (!free_.empty()) {
        AlignedFloats memory = std::move(free_.back());
        free_.pop_back();
        return memory;
      }
    }
    return AllocateAlignedFloats(elements_);
  }
  void Return(AlignedFloats memory) {
    absl::MutexLock lock(&mutex_);
    free_.push_back(std::move(memory));
  }

 private:
  const uint64_t elements_;
  absl::Mutex mutex_;
  std::vector<AlignedFloats> free_ ABSL_GUARDED_BY(mutex_);
};

class TorchComputation final : public Computation {
 public:
  TorchComputation(const worker::WorkerConfig& config, images::JobData data, std::unique_ptr<Model> model)
      : normalisation_(config.normalisation),
        augment_(config.augment),
        seed_(config.seed),
        train_(std::move(data.train)),
        test_(std::move(data.test)),
        last_test_(std::move(data.last_test)),
        evaluator_(test_, {.normalisation = config.normalisation,
                           .batch_size = config.evaluation_batch_size,
                           .class_names = std::move(data.class_names),
                           .neighbours = config.model.self_supervised.on() ? &train_ : nullptr,
                           .neighbours_max = config.neighbours_max,
                           .last_test = last_test_ ? &*last_test_ : nullptr}),
        model_(std::move(model)),
        initial_(model_->parameters().begin(), model_->parameters().end()),
        spares_(std::make_shared<Spares>(model_->elements())),
        learned_{.tensors = model_->tensors(),
                 .elements = model_->elements(),
                 .trained_elements = model_->trained_elements(),
                 .train_samples = train_.size(),
                 .test_samples = test_.size(),
                 .balanced_labels = config.trainer.balanced ? train_.labels() : std::vector<uint32_t>{},
                 .counts_correct = model_->counts_correct(),
                 .file_starts = config.trainer.by_file ? train_.file_starts() : std::vector<uint64_t>{}} {}

  ~TorchComputation() override {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    for (std::thread& thread : threads_) thread.join();
  }

  void AddThread(std::unique_ptr<Model> model) {
    threads_.emplace_back([this, model = std::move(model)] { Run(*model); });
  }

  const Learned& learned() const override { return learned_; }
  absl::Span<const float> initial_weights() const override { return initial_; }

  Pending Begin(StepTask step) override {
    absl::MutexLock lock(&mutex_);
    Task& task = tasks_.emplace_back();
    task.step = std::move(step);
    return task.done.get_future();
  }

  absl::StatusOr<worker::EvaluationResult> Evaluate(const Weights& weights,
                                                    const worker::EvaluationWork& work) override {
    CopyWeights(weights, model_->parameters());
    auto result = evaluator_.Evaluate(*model_, work, [] { return absl::OkStatus(); });
    if (!result.ok() || !work.final) return result;
    const absl::Status written = evaluator_.WriteFiles(*model_, *result);
    if (!written.ok()) return written;
    return result;
  }

  absl::StatusOr<absl::Duration> Measure(uint64_t samples) override {
    constexpr size_t kStepsMin = 15, kStepsMax = 200;
    constexpr absl::Duration kEnough = absl::Seconds(1);
    // What others take of the core is not the model's.
    const ThreadTime time;
    const absl::Time beginning = time.Now();
    std::vector<uint32_t> images(samples);
    for (size_t i = 0; i < images.size(); ++i) images[i] = static_cast<uint32_t>(i % train_.size());
    std::vector<absl::Duration> times;
    images::Batch batch;
    while (times.size() < kStepsMin || (times.size() < kStepsMax && time.Now() - beginning < kEnough)) {
      const absl::Time begin = time.Now();
      const images::Variation variation{.augment = augment_, .seed = seed_, .epoch = 0};
      const absl::Status loaded = train_.Load(images, normalisation_.mean, normalisation_.deviation, batch, &variation);
      if (!loaded.ok()) return loaded;
      const auto result = model_->Step(worker::ViewOf(batch));
      if (!result.ok()) return result.status();
      times.push_back(time.Now() - begin);
    }
    absl::c_sort(times);
    return times[times.size() / 2];
  }

 private:
  void Run(Model& model) {
    images::Batch batch;
    while (true) {
      Task task;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(this, &TorchComputation::HasWork));
        if (stopping_) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task.done.set_value(Step(model, batch, task.step));
    }
  }
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || !tasks_.empty(); }

  absl::StatusOr<std::shared_ptr<const Gradient>> Step(Model& model, images::Batch& batch, const StepTask& task) {
    const auto recycle = [spares = spares_](Gradient* gradient) {
      spares->Return(std::move(gradient->push));
      delete gradient;
    };
    std::shared_ptr<Gradient> gradient(new Gradient, recycle);
    gradient->push = spares_->Take();
    CopyWeights(task.weights, model.parameters());
    model.UsePush({gradient->push.get(), model.elements()});
    const images::Variation variation{.augment = augment_, .seed = seed_, .epoch = task.epoch};
    const auto load = [this, &batch,
                       &variation](absl::Span<const uint32_t> images) -> absl::StatusOr<worker::BatchView> {
      const absl::Status loaded = train_.Load(images, normalisation_.mean, normalisation_.deviation, batch, &variation);
      if (!loaded.ok()) return loaded;
      return worker::ViewOf(batch);
    };
    if (absl::Status stepped = RunTask(task, load, model, *gradient); !stepped.ok()) return stepped;
    gradient->norm = worker::L2Norm(model.push().first(model.trained_elements()));
    if (!std::isfinite(gradient->result.loss) ||
        !std::isfinite(worker::L2Norm(model.push().first(model.pushed_elements())))) {
      return absl::InternalError(
          absl::StrCat("the loss is ", gradient->result.loss, ", the gradient's norm ", gradient->norm,
                       ". A smaller optimizer.lr, a warm-up or optimizer.clip_norm usually helps"));
    }
    return gradient;
  }

  const images::Prefetcher::Normalisation normalisation_;
  const images::Augment augment_;
  const uint64_t seed_;
  const images::Dataset train_;
  const images::Dataset test_;
  const std::optional<images::Dataset> last_test_;
  worker::Evaluator evaluator_;
  const std::unique_ptr<Model> model_;  // of the caller's thread
  const std::vector<float> initial_;
  // Shared with the gradients that are still in use when this ends.
  const std::shared_ptr<Spares> spares_;
  const Learned learned_;

  absl::Mutex mutex_;
  // At most as many as the simulated workers have steps in flight.
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Computation>> MakeTorchComputation(const worker::WorkerConfig& config,
                                                                  uint32_t threads) {
  absl::StatusOr<worker::LoadedJob> loaded = worker::LoadJob(config);
  if (!loaded.ok()) return loaded.status();
  worker::SetComputeThreads(1);
  std::vector<std::unique_ptr<Model>> models;
  for (uint32_t i = 0; i <= threads; ++i) {
    auto model = Model::Create(loaded->spec, config.seed);
    if (!model.ok()) return model.status();
    models.push_back(*std::move(model));
  }
  std::unique_ptr<Model> own = std::move(models.back());
  models.pop_back();
  auto computation = std::make_unique<TorchComputation>(config, *std::move(loaded), std::move(own));
  for (std::unique_ptr<Model>& model : models) computation->AddThread(std::move(model));
  return computation;
}

absl::StatusOr<worker::Layout> LayoutOf(const worker::ModelSpec& spec) {
  if (FactsOf(spec.kind).built_in()) return worker::MakeLayout(spec);
  const auto model = Model::Create(spec, /*seed=*/1);
  if (!model.ok()) return model.status();
  return worker::Layout{(*model)->tensors(), (*model)->trained_elements(), (*model)->elements()};
}

}  // namespace slackline::simulator
