#include "worker/group/thread_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/time/computing_watch.h"
#include "worker/group/batch_part.h"

namespace slackline::worker {

ThreadGroup::ThreadGroup(std::vector<std::unique_ptr<Model>> devices, const GroupOptions& options)
    : options_(options), models_(std::move(devices)), sum_(models_.front()->elements(), options.buckets) {
  for (size_t i = 0; i < models_.size(); ++i) rows_.push_back(AddRow(options.trace, absl::StrCat("device ", i)));
  if (models_.size() == 1) return;
  for (size_t i = 0; i < models_.size(); ++i) {
    SLACKLINE_CHECK(models_[i]->elements() == models_.front()->elements());
    threads_.push_back(std::make_unique<TaskThread>());
  }
}

ThreadGroup::~ThreadGroup() = default;

absl::StatusOr<StepResult> ThreadGroup::Step(const BatchView& batch, const Model::Ready& ready) {
  if (!given_up_.ok()) return given_up_;
  if (models_.size() == 1 || batch.labels.empty()) return StepOf(0, batch, ready);
  if (batch.arrival != nullptr) {
    if (absl::Status all = batch.arrival->AwaitAll(); !all.ok()) return all;
  }
  const absl::Time begin = time_.Now();
  // A batch smaller than the group leaves the last devices idle.
  Start(batch, std::min(models_.size(), batch.labels.size()));
  if (const absl::Status status = Await(ready); !status.ok()) return status;
  longest_step_ = std::max(longest_step_, time_.Now() - begin);
  return Total();
}

absl::StatusOr<StepResult> ThreadGroup::StepOf(size_t device, const BatchView& part, const Model::Ready& ready) {
  TraceSpan span(rows_[device], {"forward"});
  bool backward = false;
  return models_[device]->Step(part, [&](uint64_t from) {
    if (!std::exchange(backward, true)) span.Next({"backward"});
    ready(from);
  });
}

// Each part's gradient is a mean over its samples, so the mean over the batch weighs it by their number. The same holds
// for the buffers.
void ThreadGroup::Start(const BatchView& batch, size_t busy) {
  const size_t samples = batch.labels.size();
  std::vector<Addend> addends;
  std::vector<BatchView> parts;
  for (size_t i = 0; i < busy; ++i) {
    parts.push_back(PartOf(batch, i, models_.size()));
    const double weight = static_cast<double>(parts.back().labels.size()) / static_cast<double>(samples);
    addends.push_back({.push = models_[i]->push(), .weight = static_cast<float>(weight), .trace = rows_[i]});
    if (i > 0) models_[i]->UseParameters(models_.front()->parameters());
  }
  sum_.Begin(std::move(addends));
  results_.assign(busy, absl::UnknownError("no step yet"));
  for (size_t i = 0; i < busy; ++i) {
    threads_[i]->Start([this, i, part = parts[i]] { Compute(i, part); });
  }
}

void ThreadGroup::Compute(size_t device, const BatchView& part) {
  const absl::Span<const float> teacher = model().teacher();
  const absl::Status taught = device > 0 && !teacher.empty() ? models_[device]->SetTeacher(teacher) : absl::OkStatus();
  const auto step = [&] { return StepOf(device, part, [&](uint64_t from) { sum_.Arrive(device, from); }); };
  results_[device] = taught.ok() ? step() : taught;
  const bool ok = results_[device].ok();
  if (ok) sum_.Help(device);
  sum_.Leave(device, /*failed=*/!ok);
}

absl::Status ThreadGroup::Await(const Model::Ready& ready) {
  // Nobody knows yet how long a step takes.
  ComputingPatience patience(longest_step_ == absl::ZeroDuration() ? ComputingWatch::kPatience : 1);
  uint64_t told = model().elements();
  for (;;) {
    const absl::StatusOr<BucketSum::Progress> progress = sum_.Await(told, silence_max());
    if (!progress.ok() && patience.Lasts()) continue;
    if (!progress.ok()) {
      sum_.Abort();
      given_up_ = progress.status();
      return given_up_;
    }
    if (progress->from < told) ready(told = progress->from);
    if (progress->over) return absl::OkStatus();
  }
}

absl::StatusOr<StepResult> ThreadGroup::Total() const {
  StepResult total;
  double loss_sum = 0;
  for (size_t i = 0; i < results_.size(); ++i) {
    if (!results_[i].ok()) {
      return absl::Status(results_[i].status().code(),
                          absl::StrCat("device ", i, ": ", std::string(results_[i].status().message())));
    }
    total.samples += results_[i]->samples;
    total.correct += results_[i]->correct;
    loss_sum += results_[i]->loss * static_cast<double>(results_[i]->samples);
  }
  total.loss = loss_sum / static_cast<double>(total.samples);
  return total;
}

// Well before the scheduler would call the worker stalled; like that, longer where steps are long.
absl::Duration ThreadGroup::silence_max() const { return std::max(options_.timeouts.stall / 2, 10 * longest_step_); }

}  // namespace slackline::worker
