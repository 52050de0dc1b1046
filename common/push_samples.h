// How much of the data is behind one push: what the scheduler cuts ranges by, and servers weigh pushes by.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "job.pb.h"

namespace slackline {

inline bool TrainsLocally(const job::Job& job) { return job.local().steps() > 0 || job.local().epochs() > 0; }

// How many times a push goes over each image of its range.
inline uint64_t PassesOfPush(const job::Job& job) { return std::max<uint64_t>(1, job.local().epochs()); }

// Whether there is such a group of worker.groups; without any, group 0 is all that a worker has.
//   kInvalidArgument  says which there are
inline absl::Status CheckGroup(const job::Job& job, uint32_t group) {
  const uint32_t groups = std::max(1u, static_cast<uint32_t>(job.worker().groups_size()));
  if (group < groups) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("worker.groups: found ", group,
                                                 " as the number of a group; allowed is ",
                                                 groups == 1 ? "0" : absl::StrCat("0 to ", groups - 1)));
}

// Of a worker of this group of worker.groups; of any worker where there are none.
inline uint32_t BatchSizeOf(const job::Job& job, uint32_t group) {
  const auto& groups = job.worker().groups();
  const bool own = group < static_cast<uint32_t>(groups.size()) && groups[static_cast<int>(group)].batch() > 0;
  return own ? groups[static_cast<int>(group)].batch() : job.training().batch_size();
}

// Of the group whose batches are largest.
inline uint32_t LargestBatchSize(const job::Job& job) {
  uint32_t largest = BatchSizeOf(job, 0);
  for (int i = 1; i < job.worker().groups_size(); ++i) {
    largest = std::max(largest, BatchSizeOf(job, static_cast<uint32_t>(i)));
  }
  return largest;
}

// Images of a range that make a whole push of a worker whose batches have `batch_size`; at least 1.
inline uint64_t ImagesOfPush(const job::Job& job, uint64_t batch_size, uint64_t train_images) {
  const job::Local& local = job.local();
  if (local.steps() > 0) return batch_size * local.steps();
  if (local.epochs() == 0) return batch_size * job.training().accumulate();
  if (local.subset_samples() > 0) return local.subset_samples();
  const uint64_t workers = job.cluster().workers();
  return std::max<uint64_t>(1, (train_images + workers - 1) / workers);
}

// Samples that a whole push of training.batch_size counts.
inline uint64_t SamplesOfPush(const job::Job& job, uint64_t train_images) {
  return ImagesOfPush(job, job.training().batch_size(), train_images) * PassesOfPush(job);
}

}  // namespace slackline
