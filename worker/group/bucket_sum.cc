#include "worker/group/bucket_sum.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "worker/group/silence.h"

namespace slackline::worker {
namespace {

// Elements of the sum that stay in the nearest cache while the devices are added one by one.
constexpr uint64_t kBlock = 4096;

void AddBlock(absl::Span<const Addend> addends, uint64_t begin, uint64_t end) {
  float* const sum = addends.front().push.data();
  for (uint64_t i = begin; i < end; ++i) sum[i] *= addends.front().weight;
  for (const Addend& addend : addends.subspan(1)) {
    const float* const values = addend.push.data();
    for (uint64_t i = begin; i < end; ++i) sum[i] += addend.weight * values[i];
  }
}

}  // namespace

void BucketSum::Begin(std::vector<Addend> addends) {
  absl::MutexLock lock(&mutex_);
  SLACKLINE_CHECK(Over());
  devices_.clear();
  for (Addend& addend : addends) devices_.push_back({.addend = addend});
  summed_.assign(buckets_.count(), false);
  first_unsummed_ = complete_ = claimed_ = left_ = 0;
  stopped_ = false;
  ++events_;
}

void BucketSum::Arrive(size_t device, uint64_t from) {
  absl::MutexLock lock(&mutex_);
  ++events_;
  devices_[device].complete = buckets_.CompleteFrom(from);
  const auto last = std::min_element(devices_.begin(), devices_.end(),
                                     [](const Device& a, const Device& b) { return a.complete < b.complete; });
  complete_ = last->complete;
  SumWhatIsComplete(device);
}

void BucketSum::Help(size_t device) {
  absl::MutexLock lock(&mutex_);
  SLACKLINE_CHECK(devices_[device].complete == buckets_.count());
  while (!stopped_ && claimed_ < buckets_.count()) {
    // Whoever waits for the devices has a deadline, and stops this one, too.
    mutex_.Await(absl::Condition(this, &BucketSum::HelpIsOver));
    SumWhatIsComplete(device);
  }
}

void BucketSum::Leave(size_t device, bool failed) {
  absl::MutexLock lock(&mutex_);
  ++events_;
  devices_[device].left = true;
  ++left_;
  stopped_ = stopped_ || failed;
}

void BucketSum::Abort() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
}

// The lock is free while a bucket is summed.
void BucketSum::SumWhatIsComplete(size_t device) {
  while (HasWork()) {
    const size_t bucket = claimed_++;
    std::vector<Addend> addends;
    for (const Device& device : devices_) addends.push_back(device.addend);
    mutex_.Unlock();
    {
      const TraceSpan span(addends[device].trace, {"reduce bucket", static_cast<int64_t>(bucket)});
      Sum(bucket, addends);
    }
    mutex_.Lock();
    ++events_;
    summed_[bucket] = true;
    while (first_unsummed_ < summed_.size() && summed_[first_unsummed_]) ++first_unsummed_;
  }
}

void BucketSum::Sum(size_t bucket, absl::Span<const Addend> addends) const {
  const uint64_t end = buckets_.end(bucket);
  for (uint64_t begin = buckets_.begin(bucket); begin < end; begin += kBlock) {
    AddBlock(addends, begin, std::min(end, begin + kBlock));
  }
}

uint64_t BucketSum::SummedFrom() const {
  return first_unsummed_ == 0 ? buckets_.end(0) : buckets_.begin(first_unsummed_ - 1);
}

absl::StatusOr<BucketSum::Progress> BucketSum::Await(uint64_t from, absl::Duration silence_max) {
  absl::MutexLock lock(&mutex_);
  known_from_ = from;
  GroupSilence silence(silence_max, events_);
  while (!mutex_.AwaitWithTimeout(absl::Condition(this, &BucketSum::HasNews), silence.look())) {
    if (!silence.IsTooLong(events_)) continue;
    return absl::DeadlineExceededError(
        absl::StrCat(Awaited(), " for ", absl::FormatDuration(silence_max),
                     "; the others wait for it. If a step takes so long, set a larger timeouts.stall_ms"));
  }
  return Progress{.from = SummedFrom(), .over = Over()};
}

std::string BucketSum::Awaited() const {
  std::vector<std::string> awaited;
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].left) continue;
    const size_t bucket = devices_[i].complete;
    // One that helps the others is none of them.
    if (bucket == buckets_.count() && claimed_ < bucket) continue;
    awaited.push_back(bucket == buckets_.count()
                          ? absl::StrCat("device ", i, " has not ended its step")
                          : absl::StrCat("device ", i, " has not come with bucket ", bucket + 1, " of ",
                                         buckets_.count(), " (elements ", buckets_.begin(bucket), " to ",
                                         buckets_.end(bucket), ")"));
  }
  return absl::StrJoin(awaited, ", ");
}

}  // namespace slackline::worker
