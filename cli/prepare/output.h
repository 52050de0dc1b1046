// The folder that prepared images go to: whether it may be written, and what is left there of an earlier attempt.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slackline::cli::prepare {

// Names in the folder.
inline constexpr char kSkippedFile[] = "skipped.csv";
inline constexpr char kPartialFolder[] = "partial";
// The setting that says what a pixel is; without it, it is uint8.
inline constexpr char kTypeSetting[] = "dtype";

// Holds the folder for this process until it is destroyed.
//
// Thread-safety: none.
class Output {
 public:
  enum class State {
    kNew,      // begin
    kPartial,  // go on: the same settings
    kWhole,    // all is there: the same settings
  };

  // Makes the folder, or finds what is in it. `settings`: as JSON.
  //   kFailedPrecondition  it was made with other settings, or has other files; says which
  //   kUnavailable         it cannot be made or written, or another process prepares images there
  static absl::StatusOr<Output> Open(const std::string& folder, const std::string& settings, bool overwrite);

  Output(Output&& other) noexcept;
  Output& operator=(Output&&) = delete;
  ~Output();

  State state() const { return state_; }
  // Where what is known of shard `stem` is kept until all are made.
  std::string RecordPath(const std::string& stem) const;
  // Removes what only a partial folder has.
  void RemovePartial();

 private:
  explicit Output(std::string folder) : folder_(std::move(folder)) {}

  absl::Status Lock();
  absl::Status FindState(const std::string& settings, bool overwrite);
  absl::Status Begin(const std::string& settings);

  std::string folder_;
  State state_ = State::kNew;
  int lock_ = -1;
};

// Writes a small file whole.
absl::Status WriteText(const std::string& path, const std::string& text);
//   kNotFound, kUnavailable
absl::StatusOr<std::string> ReadWhole(const std::string& path);

}  // namespace slackline::cli::prepare
