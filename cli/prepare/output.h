// Output folder for prepared images: checks whether it may be written, and finds the result of an earlier attempt.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slackline::cli::prepare {

// Names of files and folders in the output folder.
inline constexpr char kSkippedFile[] = "skipped.csv";
inline constexpr char kPartialFolder[] = "partial";
// Setting that names the type of a pixel; without it, the type is uint8.
inline constexpr char kTypeSetting[] = "dtype";
// Setting with the size of tiles, WxH; without it, pictures stay whole.
inline constexpr char kTileSetting[] = "tile";

// Locks the output folder for this process until the object is destroyed.
//
// Thread-safety: none.
class OutputFolder {
 public:
  enum class State {
    kNew,      // nothing to continue from: begin
    kPartial,  // interrupted attempt with the same settings: continue
    kWhole,    // complete, with the same settings
  };

  // Makes the folder, or finds out what is in it. `settings` is JSON.
  //   kFailedPrecondition  it was made with other settings, or has other files; the message says which
  //   kUnavailable         it cannot be made or written, or another process prepares images there
  static absl::StatusOr<OutputFolder> Open(const std::string& folder, const std::string& settings, bool overwrite);

  OutputFolder(OutputFolder&& other) noexcept;
  OutputFolder& operator=(OutputFolder&&) = delete;
  ~OutputFolder();

  State state() const { return state_; }
  // Path at which the record of shard `stem` is kept until all shards are made.
  std::string RecordPath(const std::string& stem) const;
  // Removes the files that only a partial result needs.
  void RemovePartial();

 private:
  explicit OutputFolder(std::string folder) : folder_(std::move(folder)) {}

  absl::Status Lock();
  absl::Status FindState(const std::string& settings, bool overwrite);
  absl::Status Begin(const std::string& settings);

  std::string folder_;
  State state_ = State::kNew;
  int lock_ = -1;
};

// Writes a small file, as a whole or not at all.
absl::Status WriteText(const std::string& path, const std::string& text);
// Reads a whole file.
//   kNotFound, kUnavailable
absl::StatusOr<std::string> ReadWhole(const std::string& path);

}  // namespace slackline::cli::prepare
