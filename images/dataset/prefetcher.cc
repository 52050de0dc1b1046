#include "images/dataset/prefetcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/time/computing_watch.h"

namespace slackline::images {

Prefetcher::Prefetcher(const Dataset& dataset, Normalisation normalisation, uint32_t capacity, const Augment& augment,
                       uint64_t seed, uint32_t threads)
    : dataset_(dataset),
      normalisation_(normalisation),
      capacity_(std::max(capacity, threads)),
      augment_(augment),
      seed_(seed) {
  SLACKLINE_CHECK(capacity > 0 && threads > 0);
  for (uint32_t i = 0; i < threads; ++i) threads_.emplace_back(&Prefetcher::Run, this);
}

Prefetcher::~Prefetcher() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void Prefetcher::UseMemory(BatchMemory* memory) {
  absl::MutexLock lock(&mutex_);
  SLACKLINE_CHECK(range_ == 0 || memory == memory_);
  memory_ = memory;
}

void Prefetcher::Start(std::vector<uint32_t> indices, uint32_t batch_size, uint32_t epoch) {
  SLACKLINE_CHECK(batch_size > 0);
  absl::MutexLock lock(&mutex_);
  indices_ = std::move(indices);
  batch_size_ = batch_size;
  epoch_ = epoch;
  next_ = 0;
  taken_ = given_ = 0;
  ++range_;
  // Files of an abandoned range may be let go of while its batches are made.
  failed_ = absl::OkStatus();
  for (auto& [number, batch] : ready_) spare_.push_back(std::move(batch));
  ready_.clear();
}

absl::StatusOr<std::unique_ptr<Batch>> Prefetcher::Next(absl::Duration timeout) {
  // Large pictures take long to decode.
  ComputingPatience patience(ComputingWatch::kPatience);
  absl::MutexLock lock(&mutex_);
  while (!mutex_.AwaitWithTimeout(absl::Condition(this, &Prefetcher::HasAnswer), timeout)) {
    if (patience.Lasts()) continue;
    return absl::DeadlineExceededError(absl::StrCat(
        "the prefetch threads made no batch ready within ", absl::FormatDuration(patience.waited() * timeout),
        "; they have begun ", next_, " of ", indices_.size(),
        " images of the range. If reading a batch takes so long, set a larger timeouts.stall_ms"));
  }
  if (!failed_.ok()) return failed_;
  if (given_ == taken_) return nullptr;
  std::unique_ptr<Batch> batch = std::move(ready_.extract(given_++).mapped());
  return batch;
}

void Prefetcher::Recycle(std::unique_ptr<Batch> batch) {
  SLACKLINE_CHECK(batch != nullptr);
  absl::MutexLock lock(&mutex_);
  // What is in use at a time is the capacity and one in each hand; more would only pile up.
  if (spare_.size() < capacity_ + 2) spare_.push_back(std::move(batch));
}

bool Prefetcher::HasWork() const { return stop_ || (next_ < indices_.size() && taken_ - given_ < capacity_); }

bool Prefetcher::HasAnswer() const {
  return !failed_.ok() || ready_.contains(given_) || (next_ == indices_.size() && given_ == taken_);
}

std::vector<uint32_t> Prefetcher::TakeIndices() {
  const size_t end = std::min<size_t>(next_ + batch_size_, indices_.size());
  std::vector<uint32_t> taken(indices_.begin() + next_, indices_.begin() + end);
  next_ = end;
  return taken;
}

std::unique_ptr<Batch> Prefetcher::TakeSpare() {
  if (spare_.empty()) return NewBatch(memory_);
  std::unique_ptr<Batch> batch = std::move(spare_.back());
  spare_.pop_back();
  return batch;
}

void Prefetcher::Run() {
  absl::MutexLock lock(&mutex_);
  for (;;) {
    mutex_.Await(absl::Condition(this, &Prefetcher::HasWork));
    if (stop_) return;
    const uint64_t range = range_, number = taken_++;
    const std::vector<uint32_t> indices = TakeIndices();
    std::unique_ptr<Batch> batch = TakeSpare();
    const Variation variation{.augment = augment_, .seed = seed_, .epoch = epoch_};
    mutex_.Unlock();
    const absl::Status loaded =
        dataset_.Load(indices, normalisation_.mean, normalisation_.deviation, *batch, &variation);
    mutex_.Lock();
    if (!loaded.ok() && range == range_) {
      failed_ = loaded;
    } else if (range == range_) {
      ready_.emplace(number, std::move(batch));
    } else if (spare_.size() < capacity_ + 2) {
      spare_.push_back(std::move(batch));  // another range has begun in the meantime
    }
  }
}

}  // namespace slackline::images
