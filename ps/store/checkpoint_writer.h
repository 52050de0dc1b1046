// Writes a server's part of a checkpoint in the background while training goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "ps/store/checkpoint_part.h"

namespace slackline::ps {

// All shards of a server at their cuts for one checkpoint.
struct CheckpointCut {
  JobId job;
  uint64_t checkpoint = 0;
  uint32_t attempt = 0;
  std::string folder;
  std::vector<ShardCut> shards;
};

// Writes one cut at a time to its folder.
//
// Thread-safety: safe.
// Threads:       one, born in the constructor, joined in the destructor. The destructor gives up the cut that is being
//                written.
class CheckpointWriter {
 public:
  using Written = absl::StatusOr<std::vector<wire::CheckpointFile>>;
  // Callback on the writer's thread, for each cut that no later cut has replaced.
  using Done = std::function<void(uint64_t checkpoint, uint32_t attempt, const Written& written)>;

  explicit CheckpointWriter(Done done);
  ~CheckpointWriter();

  // Starts to write `cut`, and gives up an earlier one that is not finished.
  void Write(CheckpointCut cut) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stop_ || next_.has_value(); }
  bool Superseded() ABSL_LOCKS_EXCLUDED(mutex_);
  Written WriteAll(const CheckpointCut& cut);

  const Done done_;
  absl::Mutex mutex_;
  std::optional<CheckpointCut> next_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace slackline::ps
