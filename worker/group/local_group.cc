#include "worker/group/local_group.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"

namespace slackline::worker {
namespace {

// What one device takes of a batch.
struct Part {
  size_t begin = 0;
  size_t size = 0;
};

Part PartOf(size_t samples, size_t device, size_t devices) {
  const size_t even = samples / devices, longer = samples % devices;
  return {.begin = device * even + std::min(device, longer), .size = even + (device < longer ? 1 : 0)};
}

BatchView Cut(const BatchView& batch, const Part& part) {
  const size_t pixels = batch.images.size() / batch.labels.size();
  return {.images = batch.images.subspan(part.begin * pixels, part.size * pixels),
          .labels = batch.labels.subspan(part.begin, part.size)};
}

// One device beyond the first: a model of its own, stepped in a thread of its own.
//
// Thread-safety: one caller. Between Begin() and Finish() the model, the parameters and the batch are the thread's.
// Threads:       one, born in the constructor, joined in the destructor.
class Replica {
 public:
  explicit Replica(std::unique_ptr<Model> model) : model_(std::move(model)), thread_(&Replica::Run, this) {}
  ~Replica() {
    {
      absl::MutexLock lock(&mutex_);
      state_ = State::kStop;
    }
    thread_.join();
  }

  Model& model() { return *model_; }

  // Steps on `parameters` and `batch`, which must outlive Finish().
  void Begin(absl::Span<const float> parameters, const BatchView& batch) {
    absl::MutexLock lock(&mutex_);
    SLACKLINE_CHECK(state_ == State::kIdle);
    parameters_ = parameters;
    batch_ = batch;
    state_ = State::kBusy;
  }

  // Waits without a limit: a device that hangs stalls the whole worker, whose heartbeat shows that it makes no steps.
  absl::StatusOr<StepResult> Finish() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &Replica::NotBusy));
    state_ = State::kIdle;
    return result_;
  }

 private:
  enum class State { kIdle, kBusy, kDone, kStop };

  bool NotBusy() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return state_ != State::kBusy; }
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return state_ == State::kBusy || state_ == State::kStop; }

  void Run() {
    absl::MutexLock lock(&mutex_);
    for (;;) {
      mutex_.Await(absl::Condition(this, &Replica::HasWork));
      if (state_ == State::kStop) return;
      const absl::Span<const float> parameters = parameters_;
      const BatchView batch = batch_;
      mutex_.Unlock();
      std::copy(parameters.begin(), parameters.end(), model_->parameters().begin());
      absl::StatusOr<StepResult> result = model_->Step(batch);
      mutex_.Lock();
      result_ = std::move(result);
      if (state_ == State::kBusy) state_ = State::kDone;
    }
  }

  const std::unique_ptr<Model> model_;
  absl::Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kIdle;
  absl::Span<const float> parameters_ ABSL_GUARDED_BY(mutex_);
  BatchView batch_ ABSL_GUARDED_BY(mutex_);
  absl::StatusOr<StepResult> result_ ABSL_GUARDED_BY(mutex_) = absl::UnknownError("no step yet");
  std::thread thread_;
};

// Copies: parameters of the first -> each other device: 1. Gradients are added into the first one's push() in place.
class ThreadGroup final : public LocalGroup {
 public:
  ThreadGroup(std::unique_ptr<Model> first, std::vector<std::unique_ptr<Replica>> others)
      : first_(std::move(first)), others_(std::move(others)) {}

  size_t devices() const override { return 1 + others_.size(); }
  Model& model() override { return *first_; }

  absl::StatusOr<StepResult> Step(const BatchView& batch, const Model::Ready& ready) override {
    if (others_.empty() || batch.labels.empty()) return first_->Step(batch, ready);
    // A batch smaller than the group leaves the last devices idle.
    const size_t busy = std::min(others_.size(), batch.labels.size() - 1);
    for (size_t i = 0; i < busy; ++i) {
      others_[i]->Begin(first_->parameters(), Cut(batch, PartOf(batch.labels.size(), i + 1, devices())));
    }
    absl::StatusOr<StepResult> total = first_->Step(Cut(batch, PartOf(batch.labels.size(), 0, devices())));
    std::vector<absl::StatusOr<StepResult>> results;
    for (size_t i = 0; i < busy; ++i) results.push_back(others_[i]->Finish());
    if (!total.ok()) return total;
    return Reduce(*total, results, batch.labels.size());
  }

 private:
  // Each part's result is a mean over its samples, so the mean over the batch weighs it by their number. The same
  // holds for the buffers.
  absl::StatusOr<StepResult> Reduce(StepResult total, const std::vector<absl::StatusOr<StepResult>>& results,
                                    size_t samples) {
    const double whole = static_cast<double>(samples);
    const double own_weight = static_cast<double>(total.samples) / whole;
    total.loss *= own_weight;
    Scale(static_cast<float>(own_weight));
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i].ok()) {
        return absl::Status(results[i].status().code(),
                            absl::StrCat("device ", i + 1, ": ", std::string(results[i].status().message())));
      }
      const double weight = static_cast<double>(results[i]->samples) / whole;
      total.samples += results[i]->samples;
      total.correct += results[i]->correct;
      total.loss += results[i]->loss * weight;
      Add(static_cast<float>(weight), others_[i]->model().push());
    }
    return total;
  }

  void Scale(float weight) {
    for (float& value : first_->push()) value *= weight;
  }
  void Add(float weight, absl::Span<const float> push) {
    float* const sum = first_->push().data();
    for (size_t i = 0; i < push.size(); ++i) sum[i] += weight * push[i];
  }

  const std::unique_ptr<Model> first_;
  const std::vector<std::unique_ptr<Replica>> others_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LocalGroup>> LocalGroup::Create(const ModelSpec& spec, uint64_t seed,
                                                               const std::vector<std::string>& devices) {
  for (const std::string& device : devices) {
    if (device != "cpu") {
      return absl::InvalidArgumentError(absl::StrCat("worker.devices names \"", device, "\" in [",
                                                     absl::StrJoin(devices, ", "), "]; only cpu is known"));
    }
  }
  absl::StatusOr<std::unique_ptr<Model>> first = Model::Create(spec, seed);
  if (!first.ok()) return first.status();
  std::vector<std::unique_ptr<Replica>> others;
  for (size_t i = 1; i < devices.size(); ++i) {
    absl::StatusOr<std::unique_ptr<Model>> model = Model::Create(spec, seed);
    if (!model.ok()) return model.status();
    others.push_back(std::make_unique<Replica>(*std::move(model)));
  }
  return std::make_unique<ThreadGroup>(*std::move(first), std::move(others));
}

}  // namespace slackline::worker
