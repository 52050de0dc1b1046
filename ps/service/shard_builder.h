// ShardBuilder: builds the shards that the scheduler installs, from nothing, a checkpoint or snapshots.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/time/clock.h"
#include "common/time/timeouts.h"
#include "job.pb.h"
#include "parameter_server.pb.h"
#include "ps/base/service_metrics.h"
#include "ps/host/shard_host.h"
#include "ps/host/staging.h"
#include "ps/service/snapshot_keeper.h"

namespace slackline::ps {

// Checks that a server of the job can hold these shards.
//   kInvalidArgument     an impossible shard, or staging that cannot hold what the mode needs
//   kFailedPrecondition  more weights than the machine has memory for
absl::Status CheckShards(const wire::InstallShardsRequest& request, const job::Job& job);

// Thread-safety: none; the sequencer calls it.
// Ownership:     borrows the job, the metrics and the time, which outlive the shards, too.
class ShardBuilder {
 public:
  struct Options {
    Timeouts timeouts;
    // True if shards keep snapshots when the request names a folder.
    bool keeps_snapshots = false;
    // Callbacks of each shard; see ShardConfig.
    std::function<void()> on_unpinned;
    std::function<void()> on_seeded;
    // Opens a database in place of Database::Open(); see StoreOptions.
    std::function<absl::StatusOr<std::unique_ptr<Database>>(const std::filesystem::path& folder)> open_database;
  };

  ShardBuilder(const job::Job& job, Options options, ServiceMetrics& metrics, const TimeSource& time)
      : job_(job), options_(std::move(options)), metrics_(metrics), time_(time) {}

  struct Built {
    std::map<uint32_t, std::unique_ptr<ShardHost>> shards;
    std::vector<StoredShard> stores;  // open stores of those that keep snapshots
    // Shards that cannot keep snapshots, and why.
    std::map<ShardId, std::string> snapshot_errors;
  };
  // Builds the shards, with the state that the request says to continue from, if any. With snapshots it takes as long
  // as reading them. Borrows the budget, which outlives the shards.
  //   kUnavailable         another process has the snapshots open, or there is no room for them
  //   kFailedPrecondition  there are snapshots, but the request does not continue from them; or the checkpoint is not
  //                        seen from here
  //   kDataLoss            a shard to be restored has no readable snapshot
  absl::StatusOr<Built> Build(const wire::InstallShardsRequest& request, StagingBudget& budget) const;
  // Returns the store of a shard, not opened yet.
  StoredShard StoreOf(const wire::InstallShardsRequest& request, const ShardHost& shard) const;

  bool keeps_snapshots(const wire::InstallShardsRequest& request) const {
    return options_.keeps_snapshots && !request.snapshot_folder().empty();
  }

 private:
  absl::Status BuildOne(const wire::InstallShardsRequest& request, const ShardConfig& config, StagingBudget& budget,
                        Built& built) const;
  ShardConfig ConfigOf(const wire::InstallShardsRequest& request, const wire::ShardSpec& spec) const;
  // Returns a shard restored from the newest snapshot that can be read.
  absl::StatusOr<std::unique_ptr<ShardHost>> Restore(const ShardConfig& config, const SnapshotStore& store,
                                                     Lineage lineage, StagingBudget& budget) const;

  const job::Job& job_;
  const Options options_;
  ServiceMetrics& metrics_;
  const TimeSource& time_;
};

}  // namespace slackline::ps
