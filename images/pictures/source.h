// Source: the images to prepare, with the place and label of each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "images/base/idx_file.h"
#include "images/pictures/image.h"

namespace slackline::images::pictures {

// Rectangle of a picture, in pixels from its upper left corner.
struct Part {
  uint32_t x = 0;
  uint32_t y = 0;
  uint32_t width = 0;
  uint32_t height = 0;
};

// An image to prepare.
struct Sample {
  std::string name;    // path below the source, or FILE[ROW]
  uint32_t label = 0;  // index in the source's classes
  int split = -1;      // index in kSplitNames; -1: the source does not say
  // File of a picture; empty for a row of IDX.
  std::string path;
  // Part of a tar file, if the picture is in one.
  bool in_tar = false;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint32_t idx_file = 0;
  uint32_t row = 0;
  // Name of the picture that it was cut from, if the labels have one; only until the pictures are numbered.
  std::string source = {};
  // Picture that it comes from, by a number of its own: images of one picture stay in one split.
  uint32_t picture = 0;
  // Part of the picture in pixels; width 0: all of it.
  Part part = {};
};

inline constexpr const char* kSplitNames[] = {"train", "validation", "test"};
inline constexpr int kSplits = 3;
inline constexpr int kTestSplit = 2;
// Returns the split of this name; "val" also means validation. -1 if there is no such split.
int SplitNamed(absl::string_view name);

// Returns a part of a picture. Requires: the part is not empty.
//   kInvalidArgument  the picture is smaller than when it was cut
absl::StatusOr<Image> PartOf(const Image& picture, const Part& part);
absl::StatusOr<DeepImage> PartOf(const DeepImage& picture, const Part& part);

// Reads a picture from its own file, without changes.
//   kInvalidArgument  as DecodeImage()
//   kUnavailable      the file cannot be read
absl::StatusOr<Image> ReadPicture(const std::string& path);

enum class SourceKind { kFolder, kLabels, kIdx, kWebdataset };
// Returns the name of a kind as in the settings of index.json.
absl::string_view NameOf(SourceKind kind);

struct Skipped {
  std::string name;
  std::string reason;
};

// Source lists the images of a folder before any picture is opened.
//
// Thread-safety: const calls are safe.
class Source {
 public:
  // Opens a folder. Its content determines the kind:
  //   * with `label_file`: a CSV of path (below `folder`) and label;
  //   * a folder with {train,t10k}-images-idx3-ubyte and their labels: IDX, which is kept in memory;
  //   * a folder without folders, and with tar files: WebDataset;
  //   * a folder with a folder for each class; or with folders train, validation (val) and test of these.
  // Names that begin with a dot are ignored. Classes are in the order of their bytes or, if all classes in `label_file`
  // are numbers, of their values. `classes`: minimum number of classes in tar files.
  //   kNotFound         no such folder, or no such file of labels
  //   kInvalidArgument  other content, or broken content; says what was found
  static absl::StatusOr<Source> Open(const std::string& folder, const std::string& label_file, uint32_t classes = 0);

  const std::vector<std::string>& classes() const { return classes_; }
  // Images in the order of their names.
  const std::vector<Sample>& samples() const { return samples_; }
  // Files that were found but cannot be prepared.
  const std::vector<Skipped>& skipped() const { return skipped_; }
  SourceKind kind() const { return kind_; }
  // True if every sample says to which split it belongs.
  bool has_splits() const { return has_splits_; }
  // Number of channels of the images, unless the caller chooses another.
  uint32_t channels() const { return kind_ == SourceKind::kIdx ? 1 : 3; }

  // Replaces each picture by its tiles of this size, row by row, without what is left over at the right and below.
  // `sizes`: size of each sample's picture, or why it cannot be read. Pictures without a tile are skipped.
  //   kInvalidArgument  no picture has a tile; the message says why the first has none
  absl::Status CutIntoTiles(Size tile, absl::Span<const absl::StatusOr<Size>> sizes);

  // Reads the picture that a sample is, or is a part of; the second one with 16 bits, as DecodeDeepImage() does. Same
  // errors as Read().
  absl::StatusOr<Image> ReadWhole(const Sample& sample) const;
  absl::StatusOr<DeepImage> ReadWholeDeep(const Sample& sample) const;
  // Reads one image without changes.
  //   kInvalidArgument  as DecodeImage()
  //   kUnavailable      its file cannot be read
  absl::StatusOr<Image> Read(const Sample& sample) const;

  // Returns a hash of the names, labels, sizes and modification times of all samples. Any change gives another hash.
  uint64_t Digest() const;

 private:
  // Numbers the pictures: images of one source are one, and each other image is one of its own.
  void NumberPictures();
  // Returns a row of IDX as a picture.
  Image IdxImage(const Sample& sample) const;
  absl::Status OpenLabels(const std::string& folder, const std::string& label_file);
  absl::Status OpenIdx(const std::string& folder);
  absl::Status OpenTars(const std::string& folder, const std::vector<std::string>& tars, uint32_t classes);
  absl::Status OpenFolders(const std::string& folder);
  // Adds the images of the classes below `folder`, of one split.
  absl::Status AddClasses(const std::string& folder, const std::string& prefix, int split);

  SourceKind kind_ = SourceKind::kFolder;
  bool has_splits_ = false;
  bool has_sources_ = false;  // the labels say which images were cut from one picture
  std::vector<std::string> classes_;
  std::vector<Sample> samples_;
  std::vector<Skipped> skipped_;
  std::vector<IdxArray> idx_;
};

}  // namespace slackline::images::pictures
