#include "worker/cuda/gpu_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "worker/group/batch_part.h"

namespace slackline::worker::gpu {
namespace {

// How often NCCL is asked whether it is well.
constexpr int kLooksPerSilence = 16;
// After an abort, until a thread that has not come back is taken for one that hangs.
constexpr absl::Duration kLeaveMax = absl::Seconds(5);

}  // namespace

void StepProgress::Begin() {
  absl::MutexLock lock(&mutex_);
  seen_ = {};
}

void StepProgress::BucketArrived() {
  absl::MutexLock lock(&mutex_);
  ++seen_.buckets;
}

void StepProgress::DeviceLeft() {
  absl::MutexLock lock(&mutex_);
  ++seen_.devices_left;
}

StepProgress::Seen StepProgress::Await(const Seen& known, absl::Duration timeout) const {
  const auto news = [this, &known]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !(seen_ == known); };
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&news), timeout);
  return seen_;
}

DeviceThread::~DeviceThread() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

void DeviceThread::Start(std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return task_ == nullptr; };
  mutex_.Await(absl::Condition(&idle));
  task_ = std::move(task);
}

void DeviceThread::Run() {
  absl::MutexLock lock(&mutex_);
  const auto called = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return task_ != nullptr || stop_; };
  for (;;) {
    mutex_.Await(absl::Condition(&called));
    if (stop_) return;
    const std::function<void()> task = task_;
    mutex_.Unlock();
    task();
    mutex_.Lock();
    task_ = nullptr;
  }
}

// What the trainer sees: parameters and gradients in the host's memory, evaluated on the first device.
class GpuGroup::HostModel final : public Model {
 public:
  explicit HostModel(GpuGroup& group) : group_(group), device_(group.replicas_.front()->model()) {}

  absl::Status Prepare() {
    // Its context is there; another GPU's would take memory.
    (void)cudaSetDevice(static_cast<int>(group_.names_.front().index));
    for (auto [memory, span] : {std::pair(&own_parameters_, &parameters_), std::pair(&own_push_, &push_)}) {
      auto made = PinnedFloats::Create(device_.elements());
      if (!made.ok()) return made.status();
      *memory = *std::move(made);
      *span = (*memory)->span();
    }
    return group_.replicas_.front()->Download(parameters_.data());
  }

  const std::vector<TensorInfo>& tensors() const override { return device_.tensors(); }
  uint64_t elements() const override { return device_.elements(); }
  uint64_t trained_elements() const override { return device_.trained_elements(); }
  absl::Span<float> parameters() override { return parameters_; }
  absl::Span<float> push() override { return push_; }
  void UsePush(absl::Span<float> memory) override { Use(memory, push_); }
  void UseParameters(absl::Span<float> memory) override { Use(memory, parameters_); }

  absl::StatusOr<StepResult> Step(const BatchView& batch, const Ready& ready) override {
    return group_.Step(batch, ready);
  }
  absl::StatusOr<StepResult> Evaluate(const BatchView& batch, absl::Span<int64_t> predictions) override {
    if (const absl::Status uploaded = Upload(); !uploaded.ok()) return uploaded;
    return device_.Evaluate(batch, predictions);
  }
  bool counts_correct() const override { return device_.counts_correct(); }
  absl::StatusOr<std::vector<images::DetectedObjects>> Detect(absl::Span<const images::Scene> scenes) override {
    if (const absl::Status uploaded = Upload(); !uploaded.ok()) return uploaded;
    return device_.Detect(scenes);
  }
  void Forget() override { device_.Forget(); }
  absl::Status Remember(const BatchView& batch) override {
    if (const absl::Status uploaded = Upload(); !uploaded.ok()) return uploaded;
    return device_.Remember(batch);
  }
  absl::Span<const float> teacher() const override { return device_.teacher(); }
  // The weights are on their way to the devices in the next step only.
  absl::Status MoveTeacher() override {
    group_.moves_teacher_ = !device_.teacher().empty();
    return absl::OkStatus();
  }
  absl::Status SetTeacher(absl::Span<const float> parameters) override {
    for (const auto& replica : group_.replicas_) {
      if (absl::Status set = replica->model().SetTeacher(parameters); !set.ok()) return set;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Upload() {
    if (!group_.given_up_.ok()) return group_.given_up_;
    // Nobody says whether they are others than before.
    return group_.replicas_.front()->Upload(parameters_.data());
  }
  void Use(absl::Span<float> memory, absl::Span<float>& used) {
    SLACKLINE_CHECK(memory.size() == elements());
    if (memory.data() == used.data()) return;
    lent_.Pin(memory);
    used = memory;
  }

  GpuGroup& group_;
  Model& device_;
  std::unique_ptr<PinnedFloats> own_parameters_;
  std::unique_ptr<PinnedFloats> own_push_;
  LentMemory lent_{group_.names_.front()};
  absl::Span<float> parameters_;
  absl::Span<float> push_;
};

absl::StatusOr<std::unique_ptr<LocalGroup>> GpuGroup::Create(const ModelSpec& spec, uint64_t seed,
                                                             const std::vector<Device>& devices,
                                                             absl::Duration silence_max, Trace* trace) {
  SLACKLINE_CHECK(!devices.empty());
  std::unique_ptr<GpuGroup> group(new GpuGroup(devices, silence_max));
  group->trace_ = trace;
  const absl::Status status = group->Prepare(spec, seed);
  if (!status.ok()) return status;
  return group;
}

// NCCL's ends meet, so that all devices begin at the same time. None takes longer than it was given.
absl::Status GpuGroup::Prepare(const ModelSpec& spec, uint64_t seed) {
  const auto count = static_cast<int>(names_.size());
  ncclUniqueId id = {};
  if (count > 1) {
    const absl::StatusOr<ncclUniqueId> made = Communicator::NewId();
    if (!made.ok()) return made.status();
    id = *made;
  }
  progress_.Begin();
  std::vector<absl::Status> statuses(names_.size());
  replicas_.resize(names_.size());
  for (int i = 0; i < count; ++i) {
    threads_.push_back(std::make_unique<DeviceThread>());
    const Replica::Options options = {.device = names_[static_cast<size_t>(i)],
                                      .rank = {.number = i, .count = count},
                                      .id = id,
                                      .timeout = silence_max_,
                                      .on_bucket = [this] { progress_.BucketArrived(); },
                                      .trace = AddRow(trace_, ToString(names_[static_cast<size_t>(i)]))};
    threads_.back()->Start([this, &spec, seed, options, i, &status = statuses[static_cast<size_t>(i)]] {
      auto replica = Replica::Create(spec, seed, options);
      status = replica.status();
      if (replica.ok()) replicas_[static_cast<size_t>(i)] = *std::move(replica);
      progress_.DeviceLeft();
    });
  }
  StepProgress::Seen seen;
  while (seen.devices_left < names_.size()) seen = progress_.Await(seen, silence_max_);
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  auto host = std::make_unique<HostModel>(*this);
  const absl::Status prepared = host->Prepare();
  host_ = std::move(host);
  return prepared;
}

GpuGroup::~GpuGroup() {
  if (!hangs_) {
    for (auto& replica : replicas_) {
      if (replica != nullptr) replica->Settle();
    }
    return;
  }
  for (auto& thread : threads_) (void)thread.release();
  for (auto& replica : replicas_) (void)replica.release();
  (void)host_.release();
}

absl::StatusOr<StepResult> GpuGroup::Step(const BatchView& batch, const Model::Ready& ready) {
  if (!given_up_.ok()) return given_up_;
  const size_t samples = batch.labels.size();
  if (samples == 0) return absl::InvalidArgumentError("a batch of no labels; it must have at least one");
  destination_ = {};
  if (batch.arrival != nullptr) {
    gate_.Close();
  } else if (absl::Status prepared = PrepareDestination(); !prepared.ok()) {
    return prepared;
  }
  begun_ = time_.Now();
  progress_.Begin();
  const bool moves_teacher = std::exchange(moves_teacher_, false);
  for (size_t i = 0; i < devices(); ++i) {
    const BatchView part = PartOf(batch, i, devices());
    const Replica::Order order = {
        .part = part,
        .weight = static_cast<float>(static_cast<double>(part.labels.size()) / static_cast<double>(samples)),
        .moves_teacher = moves_teacher,
        .gate = batch.arrival != nullptr ? &gate_ : nullptr,
        .parameters = i == 0 ? host_->parameters().data() : nullptr,
        .destination = i == 0 ? &destination_ : nullptr};
    threads_[i]->Start([this, i, order] {
      results_[i] = replicas_[i]->Step(order);
      progress_.DeviceLeft();
    });
  }
  absl::Status arrived;
  if (batch.arrival != nullptr) {
    arrived = gate_.Pass(*batch.arrival, {.elements = host_->elements(), .each = Replica::kPieceElements},
                         [this] { return PrepareDestination(); });
  }
  // Where they will not come, the devices end the step all the same, since NCCL's ends wait for each other; of what
  // they make nothing comes to the host.
  const absl::Status status = Await([&](uint64_t from) {
    if (arrived.ok()) ready(from);
  });
  if (!status.ok()) return GiveUp(status);
  if (!arrived.ok()) return arrived;
  return Total(samples);
}

absl::Status GpuGroup::PrepareDestination() {
  Replica::Destination destination = {.push = host_->push().data()};
  if (!chunks_.plan().empty()) {
    const absl::StatusOr<std::byte*> block = chunks_.Begin(destination.push);
    if (!block.ok()) return block.status();
    destination.block = *block;
    destination.returned = chunks_.TakeReturned();
  }
  destination_ = std::move(destination);
  return absl::OkStatus();
}

// Until all buckets are on the host and all devices are through.
absl::Status GpuGroup::Await(const Model::Ready& ready) {
  const uint64_t elements = host_->elements(), buckets = BucketsOf(elements);
  StepProgress::Seen seen;
  absl::Time heard = time_.Now();
  while (seen.buckets < buckets || seen.devices_left < devices()) {
    const StepProgress::Seen now = progress_.Await(seen, silence_max_ / kLooksPerSilence);
    for (uint64_t bucket = seen.buckets; trace_ != nullptr && bucket < now.buckets; ++bucket) {
      trace_->AddOverlapping({"bucket to host", static_cast<int64_t>(bucket)}, begun_, time_.Now());
    }
    if (now.buckets > seen.buckets) ready(chunks_.plan().ReadyFrom(BucketBegin(elements, now.buckets - 1)));
    if (now.devices_left > seen.devices_left || now.buckets > seen.buckets) heard = time_.Now();
    seen = now;
    if (const absl::Status status = CheckDevices(); !status.ok()) return status;
    // All are through, and one of them could not put its sums on its stream: they will not come.
    if (seen.devices_left == devices() && seen.buckets < buckets) {
      for (const absl::StatusOr<StepResult>& result : results_) {
        if (absl::IsInternal(result.status()) || absl::IsDeadlineExceeded(result.status())) return result.status();
      }
    }
    if (time_.Now() - heard > silence_max_) {
      return absl::DeadlineExceededError(absl::StrCat(
          "nothing was heard of ",
          absl::StrJoin(names_, ", ",
                        [](std::string* out, const Device& device) { absl::StrAppend(out, ToString(device)); }),
          " for ", absl::FormatDuration(silence_max_), ": ", seen.devices_left, " of ", devices(),
          " devices are through backward, ", seen.buckets, " of ", buckets,
          " buckets of the sum are on the host. If a step takes so long, set a larger timeouts.stall_ms"));
    }
  }
  return absl::OkStatus();
}

absl::Status GpuGroup::CheckDevices() const {
  for (const auto& replica : replicas_) {
    if (replica->communicator() == nullptr) continue;
    if (const absl::Status status = replica->communicator()->Broken(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<StepResult> GpuGroup::Total(size_t samples) const {
  StepResult total;
  for (size_t i = 0; i < results_.size(); ++i) {
    const absl::StatusOr<StepResult>& result = results_[i];
    if (!result.ok()) {
      return absl::Status(result.status().code(),
                          absl::StrCat(ToString(names_[i]), ": ", std::string(result.status().message())));
    }
    total.samples += result->samples;
    total.correct += result->correct;
    total.loss += result->loss * static_cast<double>(result->samples) / static_cast<double>(samples);
  }
  total.gradient_norm = replicas_.front()->norm();
  return total;
}

absl::Status GpuGroup::GiveUp(const absl::Status& why) {
  given_up_ = why;
  for (const auto& replica : replicas_) {
    if (replica->communicator() != nullptr) replica->communicator()->Abort();
  }
  StepProgress::Seen seen = progress_.Await({}, absl::ZeroDuration());
  const absl::Time deadline = time_.Now() + kLeaveMax;
  while (seen.devices_left < devices() && time_.Now() < deadline) seen = progress_.Await(seen, deadline - time_.Now());
  hangs_ = seen.devices_left < devices();
  return given_up_;
}

}  // namespace slackline::worker::gpu
