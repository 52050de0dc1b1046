// How much of the data is behind one push: what the scheduler cuts ranges by, and servers weigh pushes by.
#pragma once

#include <algorithm>
#include <cstdint>

#include "job.pb.h"

namespace slackline {

inline bool TrainsLocally(const job::Job& job) { return job.local().steps() > 0 || job.local().epochs() > 0; }

// How many times a push goes over each image of its range.
inline uint64_t PassesOfPush(const job::Job& job) { return std::max<uint64_t>(1, job.local().epochs()); }

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
