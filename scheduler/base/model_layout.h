// Model and data as the workers declare them: all workers must declare the same. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "job.pb.h"
#include "scheduler.pb.h"

namespace slackline::scheduler {

struct ModelLayout {
  // Length of the flat parameter vector, and of its beginning, which gradients train.
  uint64_t elements = 0;
  uint64_t trained_elements = 0;
  // First frozen element: all from here on are frozen; 0: none are.
  uint64_t frozen_from = 0;
  // Ranges of trained elements that belong to a group of optimizer.groups, in order.
  std::vector<wire::GroupRange> groups;
  // Optimizer of the servers in place of the job file's, if scripts give settings of it.
  std::optional<job::Optimizer> optimizer;
  uint64_t train_samples = 0;
  uint64_t test_samples = 0;
  // Number of training samples in each file that is spread over the nodes; empty if none are.
  std::vector<uint32_t> block_samples;
};

// Counts what `request` declares, and finds out which group each parameter is in.
//   kInvalidArgument  no tensors, none trained, parts not in order (trained, averaged, frozen), too many elements, no
//                     samples or too many; a tensor that is frozen although its group is not, or the other way round;
//                     a group that is not the first to match any parameter, or that a script gives to none; an
//                     optimizer of a script that the job does not allow
absl::StatusOr<ModelLayout> LayoutOf(const wire::RegisterWorkerRequest& request,
                                     const job::Job& job = job::Job::default_instance());

// Adds to `request` the optimizer, if it is not the job file's, and the group ranges that overlap its shards.
template <typename Request>
void AddOptimizer(const ModelLayout& layout, Request& request) {
  if (layout.optimizer) *request.mutable_optimizer() = *layout.optimizer;
  for (const wire::GroupRange& range : layout.groups) {
    const bool meets = std::any_of(request.shards().begin(), request.shards().end(), [&](const wire::ShardSpec& shard) {
      return shard.begin() < range.end() && range.begin() < shard.end();
    });
    if (meets) *request.add_groups() = range;
  }
}

// Returns OK if the worker has built the same model and sees the same data as `first`.
//   kInvalidArgument  they differ; the message names the first difference
absl::Status CheckSame(const wire::RegisterWorkerRequest& first, const wire::RegisterWorkerRequest& other);
// Returns OK if the script of the worker gives the same settings of the optimizer as that of `first`, or if neither
// gives any. Requires: CheckSame().
//   kInvalidArgument  they differ; the message names the first difference
absl::Status CheckSameOptimizer(const wire::RegisterWorkerRequest& first, const wire::RegisterWorkerRequest& other);

// Removes the optimizer that a script has given from its registration.
void ForgetOptimizer(wire::RegisterWorkerRequest& request);

// Returns a fingerprint of training data in the form of data.replaces.
std::string FingerprintText(uint64_t fingerprint);

// Returns OK if the worker's training data are those of `checkpoint`, whose fingerprint is `kept`, or if either
// fingerprint is 0: not known.
//   kInvalidArgument  they differ; the message names both fingerprints, and how to continue nevertheless
absl::Status CheckDataKept(uint64_t kept, const std::string& checkpoint, const wire::RegisterWorkerRequest& worker);

}  // namespace slackline::scheduler
