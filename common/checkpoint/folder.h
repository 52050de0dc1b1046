// The checkpoints of a run. Each is a folder inside one folder, and is either whole or absent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint.pb.h"
#include "common/checkpoint/names.h"
#include "common/job/metric_names.h"

namespace slackline::checkpoint {

inline constexpr uint32_t kManifestFormat = 1;

// Returns the folder with the checkpoints of a run. If `configured` (checkpoint.folder of the job) is set, it holds one
// folder for each run, named after the run's path. If it is empty, the checkpoints are in the run folder.
std::filesystem::path FolderOfRun(const std::string& configured, const std::filesystem::path& run_folder);

// Returns the metric by which an evaluation was found to be the best.
ComparedMetric MetricOf(const Best& best);

// A whole checkpoint, under its final name.
struct Found {
  uint64_t number = 0;
  std::filesystem::path path;
};
// Returns the whole checkpoints, newest first. Empty if the folder does not exist.
std::vector<Found> List(const std::filesystem::path& folder);
// Returns the largest number of a checkpoint that was begun and still has a folder, whole or not. 0 if there is none.
uint64_t LastNumber(const std::filesystem::path& folder);

// Parses the text of manifest.json. `path` is for messages.
//   kDataLoss  the manifest is broken
absl::StatusOr<Manifest> ParseManifest(const std::string& text, const std::filesystem::path& path);

//   kNotFound     there is no checkpoint
//   kDataLoss     its manifest is broken
//   kUnavailable  the file system refuses
absl::StatusOr<Manifest> ReadManifest(const std::filesystem::path& path);

// Checks that all files exist with the right length. With `thorough`, also checks every checksum, which reads all bytes
// on several threads.
//   kDataLoss     names the broken or missing file
//   kUnavailable  the file system refuses
absl::Status Verify(const std::filesystem::path& path, const Manifest& manifest, bool thorough);

// Completes a checkpoint: writes the manifest into the partial folder of manifest.number() and the job, then gives the
// folder its final name. On return the checkpoint survives a loss of power. Fills in format and checksum.
//   kFailedPrecondition  a file is missing or has another length: the server wrote to another file system
// Errors of DurableFile: kResourceExhausted, kUnavailable.
absl::StatusOr<std::filesystem::path> Commit(const std::filesystem::path& folder, Manifest manifest);

// Number of checkpoints to keep: the newest ones, and the best ones of those made for an evaluation.
struct Kept {
  size_t newest = 1;
  size_t best = 0;
};

// Removes all checkpoints except those in `kept` and `spared`. Returns the names of the removed ones. A checkpoint
// whose manifest cannot be read does not count as one of the best.
absl::StatusOr<std::vector<std::string>> Prune(const std::filesystem::path& folder, const Kept& kept,
                                               const std::filesystem::path& spared = {});
// Removes the remains of unfinished checkpoints with numbers up to `number`.
absl::Status PrunePartial(const std::filesystem::path& folder, uint64_t number);
// Renames all checkpoints after `number`, from which the run goes on, so that none of them passes for the newest.
absl::Status PutAsideAfter(const std::filesystem::path& folder, uint64_t number);

// The chosen checkpoint, and the ones that were passed over for it with the reasons, for people.
struct Choice {
  std::filesystem::path path;
  Manifest manifest;
  std::vector<std::string> passed_over;
};
//   kNotFound     there is no whole checkpoint; names those passed over
//   kUnavailable  the file system refuses: a newer checkpoint may exist
absl::StatusOr<Choice> ChooseNewest(const std::filesystem::path& folder);
// Chooses the best whole checkpoint of those made for an evaluation. The newest of these decides whether loss or
// accuracy counts.
absl::StatusOr<Choice> ChooseBest(const std::filesystem::path& folder);

}  // namespace slackline::checkpoint
