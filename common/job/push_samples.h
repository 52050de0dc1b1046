// Number of images and samples behind one push. The scheduler sizes ranges by it, and servers weight pushes by it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "job.pb.h"

namespace slackline {

inline bool TrainsLocally(const job::Job& job) { return job.local().steps() > 0 || job.local().epochs() > 0; }

// Returns the number of times that a push goes over each image of its range.
inline uint64_t PassesOfPush(const job::Job& job) { return std::max<uint64_t>(1, job.local().epochs()); }

// Checks that worker.groups has this group. Without any groups, the only group is 0.
//   kInvalidArgument  names the groups that exist
inline absl::Status CheckGroup(const job::Job& job, uint32_t group) {
  const uint32_t groups = std::max(1u, static_cast<uint32_t>(job.worker().groups_size()));
  if (group < groups) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("worker.groups: found ", group,
                                                 " as the number of a group; allowed is ",
                                                 groups == 1 ? "0" : absl::StrCat("0 to ", groups - 1)));
}

// Returns the batch size of a worker of this group of worker.groups, or of any worker if there are no groups.
inline uint32_t BatchSizeOf(const job::Job& job, uint32_t group) {
  const auto& groups = job.worker().groups();
  const bool own = group < static_cast<uint32_t>(groups.size()) && groups[static_cast<int>(group)].batch() > 0;
  return own ? groups[static_cast<int>(group)].batch() : job.training().batch_size();
}

// Returns the batch size of the group with the largest batches.
inline uint32_t LargestBatchSize(const job::Job& job) {
  uint32_t largest = BatchSizeOf(job, 0);
  for (int i = 1; i < job.worker().groups_size(); ++i) {
    largest = std::max(largest, BatchSizeOf(job, static_cast<uint32_t>(i)));
  }
  return largest;
}

// Returns the number of images of a range that make a whole push of a worker with batches of `batch_size`; at least 1.
inline uint64_t ImagesOfPush(const job::Job& job, uint64_t batch_size, uint64_t train_images) {
  const job::Local& local = job.local();
  if (local.steps() > 0) return batch_size * local.steps();
  if (local.epochs() == 0) return batch_size * job.training().accumulate();
  if (local.subset_samples() > 0) return local.subset_samples();
  const uint64_t workers = job.cluster().workers();
  return std::max<uint64_t>(1, (train_images + workers - 1) / workers);
}

// Returns the number of samples in a whole push with batches of training.batch_size.
inline uint64_t SamplesOfPush(const job::Job& job, uint64_t train_images) {
  return ImagesOfPush(job, job.training().batch_size(), train_images) * PassesOfPush(job);
}

// Returns a warning, for people, if an epoch has fewer samples than one push of each worker; empty if it has enough.
inline std::string FewSamplesDoubt(const job::Job& job, uint64_t train_samples) {
  const uint64_t push = ImagesOfPush(job, job.training().batch_size(), train_samples);
  const uint64_t workers = job.cluster().workers();
  if (job.local().epochs() > 0 || push * workers <= train_samples) return "";
  return absl::StrCat("an epoch has ", train_samples, " samples, and one push of each worker takes ", workers, " x ",
                      push,
                      ": the run makes few steps, and some workers get no samples. Lower training.batch_size or "
                      "cluster.workers");
}

}  // namespace slackline
