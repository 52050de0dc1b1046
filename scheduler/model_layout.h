// What the workers say the model and the data are: all must say the same. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "job.pb.h"
#include "scheduler.pb.h"

namespace slackline::scheduler {

struct ModelLayout {
  // Length of the flat parameter vector, and how much of its beginning gradients train.
  uint64_t elements = 0;
  uint64_t trained_elements = 0;
  // Elements from here on are frozen; 0: none are.
  uint64_t frozen_from = 0;
  // Of the trained elements, those that a group of optimizer.groups is for, in order.
  std::vector<wire::GroupRange> groups;
  uint64_t train_samples = 0;
  uint64_t test_samples = 0;
};

// Counts what `request` declares, and finds out which group each parameter is in.
//   kInvalidArgument  no tensors, none trained, parts not in order (trained, averaged, frozen), too many elements, no
//                     samples; a tensor that is frozen where its group is not, or the other way round; a group that is
//                     the first to match no parameter
absl::StatusOr<ModelLayout> LayoutOf(const wire::RegisterWorkerRequest& request,
                                     const job::Optimizer& optimizer = job::Optimizer::default_instance());

// Of the ranges, those that meet the shards.
template <typename Request>
void AddGroups(const ModelLayout& layout, Request& request) {
  for (const wire::GroupRange& range : layout.groups) {
    const bool meets = std::any_of(request.shards().begin(), request.shards().end(), [&](const wire::ShardSpec& shard) {
      return shard.begin() < range.end() && range.begin() < shard.end();
    });
    if (meets) *request.add_groups() = range;
  }
}

// OK when the worker has built the same model and sees the same data as `first`.
//   kInvalidArgument  names the first difference
absl::Status CheckSame(const wire::RegisterWorkerRequest& first, const wire::RegisterWorkerRequest& other);

// A fingerprint of training data as data.replaces has it.
std::string FingerprintText(uint64_t fingerprint);

// OK when the worker's training data are those of `checkpoint`, whose fingerprint is `kept`, or one of both is 0: not
// known.
//   kInvalidArgument  names both, and how to go on nevertheless
absl::Status CheckDataKept(uint64_t kept, const std::string& checkpoint, const wire::RegisterWorkerRequest& worker);

}  // namespace slackline::scheduler
