// The checkpoints of a run: folders in a folder, each whole or not there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "checkpoint.pb.h"
#include "common/ids.h"

namespace slackline::checkpoint {

inline constexpr uint32_t kManifestFormat = 1;

// Where those of a run are: `configured` (checkpoint.folder of the job) has a folder for each run, by its path; empty:
// in the run folder.
std::filesystem::path FolderOfRun(const std::string& configured, const std::filesystem::path& run_folder);

// "checkpoint-000012"; while it is written "checkpoint-000012.JOB.partial", so that what is left of another job writes
// elsewhere; and "checkpoint-000012.undone" of a run that went on from an earlier one.
std::string NameOf(uint64_t number);
std::string PartialNameOf(uint64_t number, JobId job);

// One that is there under its name.
struct Found {
  uint64_t number = 0;
  std::filesystem::path path;
};
// Newest first; none where there is no such folder.
std::vector<Found> List(const std::filesystem::path& folder);
// The largest number of a checkpoint that was ever begun and is still there, whole or not; 0 for none.
uint64_t LastNumber(const std::filesystem::path& folder);

// What manifest.json says; `path` is for messages.
//   kDataLoss  it is broken
absl::StatusOr<Manifest> ParseManifest(const std::string& text, const std::filesystem::path& path);

//   kNotFound     there is no checkpoint
//   kDataLoss     its manifest is broken
//   kUnavailable  the file system refuses
absl::StatusOr<Manifest> ReadManifest(const std::filesystem::path& path);

// Whether all files are there in their lengths; with `thorough`, whether every checksum is right, which reads all bytes
// on several threads.
//   kDataLoss     what is broken or missing
//   kUnavailable  the file system refuses
absl::Status Verify(const std::filesystem::path& path, const Manifest& manifest, bool thorough);

// Gives the partial folder of manifest.number() and the job its manifest and its name; it is there from then on, also
// after a loss of power. Fills format and checksum.
//   kFailedPrecondition  a file is not there in its length: it was written to another file system
//   kResourceExhausted, kUnavailable  as DurableFile has them
absl::StatusOr<std::filesystem::path> Commit(const std::filesystem::path& folder, Manifest manifest);

// Which stay: the newest ones, and of those that were made for an evaluation the best ones.
struct Kept {
  size_t newest = 1;
  size_t best = 0;
};

// Removes all but those, and not `spared`. Returns their names. One whose manifest cannot be read is not among the
// best.
absl::StatusOr<std::vector<std::string>> Prune(const std::filesystem::path& folder, const Kept& kept,
                                               const std::filesystem::path& spared = {});
// Removes what is left of those up to `number` that were not finished.
absl::Status PrunePartial(const std::filesystem::path& folder, uint64_t number);
// The run goes on from this one: later ones are renamed, so that nobody takes them for the newest.
absl::Status PutAsideAfter(const std::filesystem::path& folder, uint64_t number);

// The newest that is whole, and what was passed over for it, for people.
struct Choice {
  std::filesystem::path path;
  Manifest manifest;
  std::vector<std::string> passed_over;
};
//   kNotFound     there is none; names what was passed over
//   kUnavailable  the file system refuses: there may be a newer one
absl::StatusOr<Choice> ChooseNewest(const std::filesystem::path& folder);
// The same for the best of those that were made for an evaluation, by what the newest of them goes by.
absl::StatusOr<Choice> ChooseBest(const std::filesystem::path& folder);

}  // namespace slackline::checkpoint
