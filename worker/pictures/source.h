// The images that are to be prepared: where each lies, and which label it has.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/idx_file.h"
#include "worker/pictures/image.h"

namespace slackline::worker::pictures {

// One image that is to be prepared.
struct Sample {
  std::string name;    // its path below the source, or FILE[ROW]
  uint32_t label = 0;  // of the source's classes
  int split = -1;      // of kSplitNames; -1: not said by the source
  // Of a picture: its file; empty for a row of IDX.
  std::string path;
  // A tar file's part.
  bool in_tar = false;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint32_t idx_file = 0;
  uint32_t row = 0;
};

inline constexpr const char* kSplitNames[] = {"train", "validation", "test"};
inline constexpr int kSplits = 3;
inline constexpr int kTestSplit = 2;
// "val" is validation, too; -1 where there is no such split.
int SplitNamed(absl::string_view name);

// A picture as it is, out of a file of its own.
//   kInvalidArgument  as DecodeImage()
//   kUnavailable      the file cannot be read
absl::StatusOr<Image> ReadPicture(const std::string& path);

struct Skipped {
  std::string name;
  std::string reason;
};

// What there is, before any picture is opened.
//
// Thread-safety: const calls are safe.
class Source {
 public:
  // Which of these it is, the folder's content says:
  //   * with `label_file`: a CSV of path (below `folder`) and label;
  //   * a folder with {train,t10k}-images-idx3-ubyte and their labels: IDX, which is kept in memory;
  //   * a folder without folders, and with tar files: WebDataset;
  //   * a folder with a folder for each class; or with folders train, validation (val) and test of these.
  // Names beginning with a dot are passed over. Classes are in the order of their bytes, or, where all are numbers in
  // `label_file`, of their value.
  //   kNotFound         no such folder, or file of labels
  //   kInvalidArgument  no such content, or broken; says what was found
  // `classes`: of tar files, how many there are at least.
  static absl::StatusOr<Source> Open(const std::string& folder, const std::string& label_file, uint32_t classes = 0);

  const std::vector<std::string>& classes() const { return classes_; }
  // In the order of their names.
  const std::vector<Sample>& samples() const { return samples_; }
  // What was found and is no image that can be prepared.
  const std::vector<Skipped>& skipped() const { return skipped_; }
  // folders, labels, idx or webdataset.
  const std::string& kind() const { return kind_; }
  // Every sample says which split it is of.
  bool has_splits() const { return has_splits_; }
  // Channels that its images have if nobody says otherwise.
  uint32_t channels() const { return kind_ == "idx" ? 1 : 3; }

  // Reads one image as it is.
  //   kInvalidArgument  as DecodeImage()
  //   kUnavailable      its file cannot be read
  absl::StatusOr<Image> Read(const Sample& sample) const;
  // The same with 16 bits, as DecodeDeepImage() has them.
  absl::StatusOr<DeepImage> ReadDeep(const Sample& sample) const;

  // Over names, labels, sizes and times of change of all samples: another one where anything was changed.
  uint64_t Digest() const;

 private:
  // A row of IDX, as a picture.
  Image IdxImage(const Sample& sample) const;
  absl::Status OpenLabels(const std::string& folder, const std::string& label_file);
  absl::Status OpenIdx(const std::string& folder);
  absl::Status OpenTars(const std::string& folder, const std::vector<std::string>& tars, uint32_t classes);
  absl::Status OpenFolders(const std::string& folder);
  // Images of the classes below `folder`, of one split.
  absl::Status AddClasses(const std::string& folder, const std::string& prefix, int split);

  std::string kind_;
  bool has_splits_ = false;
  std::vector<std::string> classes_;
  std::vector<Sample> samples_;
  std::vector<Skipped> skipped_;
  std::vector<IdxArray> idx_;
};

}  // namespace slackline::worker::pictures
