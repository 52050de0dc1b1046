#include "images/pictures/source.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/storage/checksum.h"
#include "images/base/class_names.h"
#include "images/pictures/label_file.h"
#include "images/pictures/tar_index.h"
#include "images/pictures/webdataset.h"

namespace slackline::images::pictures {
namespace {

namespace fs = std::filesystem;

// A file that is larger is no picture.
constexpr uint64_t kImageFileBytesMax = uint64_t{1} << 30;
constexpr const char* kIdxStems[] = {"train", "t10k"};
constexpr int kIdxSplits[] = {0, 2};

absl::Status TooLarge(uint64_t bytes) {
  return absl::InvalidArgumentError(absl::StrCat("has ", bytes, " bytes; allowed are at most ", kImageFileBytesMax));
}

absl::Status ListError(const std::string& folder, const std::error_code& error) {
  const std::string message = absl::StrCat("cannot list ", folder, ": ", error.message());
  return error == std::errc::no_such_file_or_directory ? absl::NotFoundError(message) : absl::UnavailableError(message);
}

bool IsHidden(const fs::path& path) { return absl::StartsWith(path.filename().string(), "."); }

bool HasImageName(const fs::path& path) {
  const std::string ending = absl::AsciiStrToLower(path.extension().string());
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

// Folders in `folder` that are not hidden, by name.
absl::StatusOr<std::vector<std::string>> FoldersIn(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code no_folder;
    if (!IsHidden(it->path()) && it->is_directory(no_folder)) names.push_back(it->path().filename().string());
  }
  if (error) return ListError(folder, error);
  std::sort(names.begin(), names.end());
  return names;
}

// Files below `folder`, at any depth, as paths below it, by name.
absl::StatusOr<std::vector<std::string>> FilesBelow(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code unknown;
    if (IsHidden(it->path())) {
      it.disable_recursion_pending();
    } else if (!it->is_directory(unknown)) {
      names.push_back(it->path().lexically_relative(folder).string());
    }
  }
  if (error) return ListError(folder, error);
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) return absl::UnavailableError(absl::StrCat("cannot read ", path));
  return text;
}

bool HasIdx(const std::string& folder) {
  std::error_code error;
  for (const char* stem : kIdxStems) {
    const std::string path = absl::StrCat(folder, "/", stem, "-images-idx3-ubyte");
    if (fs::exists(path, error) || fs::exists(path + ".gz", error)) return true;
  }
  return false;
}

// By value where all are numbers, else by bytes.
std::vector<std::string> Ordered(const std::set<std::string>& labels) {
  std::vector<std::pair<int64_t, std::string>> numbers;
  for (const std::string& label : labels) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(label, &number)) return {labels.begin(), labels.end()};
    numbers.emplace_back(number, label);
  }
  std::sort(numbers.begin(), numbers.end());
  std::vector<std::string> names;
  for (auto& [number, label] : numbers) names.push_back(std::move(label));
  return names;
}

}  // namespace

int SplitNamed(absl::string_view name) {
  for (int i = 0; i < kSplits; ++i) {
    if (name == kSplitNames[i]) return i;
  }
  return name == "val" ? 1 : -1;
}

absl::string_view NameOf(SourceKind kind) {
  constexpr absl::string_view kNames[] = {"folders", "labels", "idx", "webdataset"};
  return kNames[static_cast<size_t>(kind)];
}

absl::StatusOr<Source> Source::Open(const std::string& folder, const std::string& label_file, uint32_t classes) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return absl::NotFoundError(absl::StrCat("found ", folder, "; allowed is a folder that exists"));
  }
  Source source;
  absl::Status status = absl::OkStatus();
  if (!label_file.empty()) {
    status = source.OpenLabels(folder, label_file);
  } else if (HasIdx(folder)) {
    status = source.OpenIdx(folder);
  } else {
    const auto folders = FoldersIn(folder);
    const auto tars = TarsIn(folder);
    const bool has_tars = folders.ok() && folders->empty() && tars.ok() && !tars->empty();
    status = has_tars ? source.OpenTars(folder, *tars, classes) : source.OpenFolders(folder);
  }
  if (!status.ok()) return status;
  if (source.samples_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, " has no images",
                     source.skipped_.empty() ? std::string()
                                             : absl::StrCat("; of ", source.skipped_.size(), " files the first is ",
                                                            source.skipped_[0].name, ": ", source.skipped_[0].reason)));
  }
  source.NumberPictures();
  return source;
}

void Source::NumberPictures() {
  std::map<std::string, uint32_t> numbers;
  for (uint32_t i = 0; i < samples_.size(); ++i) {
    Sample& sample = samples_[i];
    has_sources_ = has_sources_ || !sample.source.empty();
    sample.picture = sample.source.empty() ? i : numbers.emplace(std::exchange(sample.source, ""), i).first->second;
  }
}

absl::Status Source::CutIntoTiles(Size tile, absl::Span<const absl::StatusOr<Size>> sizes) {
  std::vector<Sample> tiles;
  const size_t skipped_before = skipped_.size();
  for (size_t i = 0; i < samples_.size(); ++i) {
    const Sample& sample = samples_[i];
    const Size size = sizes[i].ok() ? *sizes[i] : Size();
    if (!sizes[i].ok()) {
      skipped_.push_back({sample.name, std::string(sizes[i].status().message())});
    } else if (size.width < tile.width || size.height < tile.height) {
      skipped_.push_back({sample.name, absl::StrCat("has ", size.width, "x", size.height, " pixels, and a tile ",
                                                    tile.width, "x", tile.height)});
    }
    for (uint32_t y = 0; y + tile.height <= size.height; y += tile.height) {
      for (uint32_t x = 0; x + tile.width <= size.width; x += tile.width) {
        tiles.push_back(sample);
        tiles.back().name = absl::StrCat(sample.name, "[", x, ",", y, "]");
        tiles.back().part = {.x = x, .y = y, .width = tile.width, .height = tile.height};
      }
    }
  }
  if (tiles.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("none of the ", samples_.size(), " images can be cut into tiles; the first is ",
                     skipped_[skipped_before].name, ": ", skipped_[skipped_before].reason));
  }
  samples_ = std::move(tiles);
  return absl::OkStatus();
}

absl::Status Source::OpenLabels(const std::string& folder, const std::string& label_file) {
  kind_ = SourceKind::kLabels;
  const absl::StatusOr<std::string> text = ReadText(label_file);
  if (!text.ok()) return text.status();
  absl::StatusOr<LabelTable> table = ParseLabels(*text);
  if (!table.ok()) return absl::InvalidArgumentError(absl::StrCat(label_file, ": ", table.status().message()));
  has_splits_ = table->has_split;
  std::set<std::string> labels;
  for (const LabelRow& row : table->rows) {
    if (!row.label.empty()) labels.insert(row.label);
  }
  classes_ = Ordered(labels);
  std::map<std::string, uint32_t> numbers;
  for (uint32_t i = 0; i < classes_.size(); ++i) numbers[classes_[i]] = i;
  std::sort(table->rows.begin(), table->rows.end(),
            [](const LabelRow& a, const LabelRow& b) { return a.path < b.path; });
  for (const LabelRow& row : table->rows) {
    const int split = SplitNamed(row.split);
    if (has_splits_ && split < 0) {
      return absl::InvalidArgumentError(absl::StrCat(label_file, ": ", row.path, " has the split '", row.split,
                                                     "'; allowed are ", absl::StrJoin(kSplitNames, ", ")));
    }
    if (row.label.empty()) {
      skipped_.push_back({row.path, "it has no label"});
    } else {
      samples_.push_back({.name = row.path,
                          .label = numbers[row.label],
                          .split = split,
                          .path = (fs::path(folder) / row.path).string(),
                          .source = row.source});
    }
  }
  return absl::OkStatus();
}

absl::Status Source::OpenIdx(const std::string& folder) {
  kind_ = SourceKind::kIdx;
  has_splits_ = true;
  uint32_t classes = 0;
  for (int i = 0; i < 2; ++i) {
    const std::string stem = kIdxStems[i];
    auto images = ReadIdxFile(folder, stem + "-images-idx3-ubyte", {.rank = 3});
    // One of the two is enough.
    if (absl::IsNotFound(images.status())) continue;
    if (!images.ok()) return images.status();
    const auto labels = ReadIdxFile(folder, stem + "-labels-idx1-ubyte", {.rank = 1});
    if (!labels.ok()) return labels.status();
    if (images->kept != labels->kept) {
      return absl::InvalidArgumentError(absl::StrCat(folder, "/", stem, "-*: ", images->kept, " images but ",
                                                     labels->kept, " labels; there must be one for each"));
    }
    for (uint32_t row = 0; row < images->kept; ++row) {
      samples_.push_back({.name = absl::StrCat(stem, "-images-idx3-ubyte[", row, "]"),
                          .label = labels->values[row],
                          .split = kIdxSplits[i],
                          .path = {},
                          .idx_file = static_cast<uint32_t>(idx_.size()),
                          .row = row});
      classes = std::max<uint32_t>(classes, labels->values[row] + 1u);
    }
    idx_.push_back(*std::move(images));
  }
  absl::StatusOr<std::vector<std::string>> names = ReadClassNames(folder, classes);
  if (!names.ok()) return names.status();
  classes_ = *std::move(names);
  return absl::OkStatus();
}

absl::Status Source::OpenTars(const std::string& folder, const std::vector<std::string>& tars, uint32_t classes) {
  kind_ = SourceKind::kWebdataset;
  absl::StatusOr<TarSamples> found = ReadTarSamples(folder, tars);
  if (!found.ok()) return found.status();
  has_splits_ = found->has_splits;
  samples_ = std::move(found->samples);
  skipped_ = std::move(found->skipped);
  absl::StatusOr<std::vector<std::string>> names = ReadClassNames(folder, std::max(found->classes, classes));
  if (!names.ok()) return names.status();
  classes_ = *std::move(names);
  return absl::OkStatus();
}

absl::Status Source::OpenFolders(const std::string& folder) {
  kind_ = SourceKind::kFolder;
  const absl::StatusOr<std::vector<std::string>> folders = FoldersIn(folder);
  if (!folders.ok()) return folders.status();
  if (folders->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder,
        " has no folders; allowed are a folder for each class, tar files, the files of IDX, or --labels with a CSV"));
  }
  has_splits_ = std::all_of(folders->begin(), folders->end(), [](const auto& name) { return SplitNamed(name) >= 0; });
  if (!has_splits_) {
    classes_ = *folders;
    return AddClasses(folder, "", -1);
  }
  std::set<std::string> classes;
  for (const std::string& split : *folders) {
    const auto names = FoldersIn(absl::StrCat(folder, "/", split));
    if (!names.ok()) return names.status();
    classes.insert(names->begin(), names->end());
  }
  classes_.assign(classes.begin(), classes.end());
  for (const std::string& split : *folders) {
    const absl::Status added = AddClasses(absl::StrCat(folder, "/", split), split + "/", SplitNamed(split));
    if (!added.ok()) return added;
  }
  return absl::OkStatus();
}

absl::Status Source::AddClasses(const std::string& folder, const std::string& prefix, int split) {
  for (uint32_t label = 0; label < classes_.size(); ++label) {
    const std::string class_folder = absl::StrCat(folder, "/", classes_[label]);
    std::error_code error;
    if (!fs::exists(class_folder, error)) continue;
    const absl::StatusOr<std::vector<std::string>> files = FilesBelow(class_folder);
    if (!files.ok()) return files.status();
    for (const std::string& file : *files) {
      const std::string name = absl::StrCat(prefix, classes_[label], "/", file);
      if (HasImageName(file)) {
        samples_.push_back(
            {.name = name, .label = label, .split = split, .path = absl::StrCat(class_folder, "/", file)});
      } else {
        skipped_.push_back({name, "its name does not end in .jpg, .jpeg or .png"});
      }
    }
  }
  return absl::OkStatus();
}

namespace {

absl::StatusOr<std::string> PictureBytes(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return absl::UnavailableError("there is no such file");
  if (!fs::is_regular_file(status)) return absl::UnavailableError("it is no file");
  const uint64_t bytes = fs::file_size(path, error);
  if (error) return absl::UnavailableError(error.message());
  if (bytes > kImageFileBytesMax) return TooLarge(bytes);
  absl::StatusOr<std::string> text = ReadText(path);
  if (!text.ok()) return absl::UnavailableError("it cannot be read");
  return text;
}

template <typename Value>
absl::StatusOr<BasicImage<Value>> Cut(const BasicImage<Value>& picture, const Part& part) {
  if (part.x + part.width > picture.width || part.y + part.height > picture.height) {
    return absl::InvalidArgumentError(absl::StrCat("has ", picture.width, "x", picture.height, " pixels now"));
  }
  BasicImage<Value> cut{.channels = picture.channels, .height = part.height, .width = part.width, .pixels = {}};
  const size_t row = size_t{part.width} * cut.channels;
  cut.pixels.reserve(row * part.height);
  for (uint32_t y = part.y; y < part.y + part.height; ++y) {
    const auto begin = picture.pixels.begin() + (static_cast<ptrdiff_t>(y) * picture.width + part.x) * cut.channels;
    cut.pixels.insert(cut.pixels.end(), begin, begin + static_cast<ptrdiff_t>(row));
  }
  return cut;
}

// Of a file of its own, or a part of a tar file.
absl::StatusOr<std::string> BytesOf(const Sample& sample) {
  if (!sample.in_tar) return PictureBytes(sample.path);
  if (sample.bytes > kImageFileBytesMax) return TooLarge(sample.bytes);
  return ReadPart(sample.path, sample.offset, sample.bytes);
}

}  // namespace

absl::StatusOr<Image> ReadPicture(const std::string& path) {
  const absl::StatusOr<std::string> bytes = PictureBytes(path);
  if (!bytes.ok()) return bytes.status();
  return DecodeImage(*bytes);
}

Image Source::IdxImage(const Sample& sample) const {
  const IdxArray& array = idx_[sample.idx_file];
  Image image{.channels = 1, .height = array.shape[1], .width = array.shape[2], .pixels = {}};
  const size_t bytes = size_t{image.height} * image.width;
  const uint8_t* begin = array.values.data() + bytes * sample.row;
  image.pixels.assign(begin, begin + bytes);
  return image;
}

absl::StatusOr<Image> PartOf(const Image& picture, const Part& part) { return Cut(picture, part); }

absl::StatusOr<DeepImage> PartOf(const DeepImage& picture, const Part& part) { return Cut(picture, part); }

absl::StatusOr<Image> Source::ReadWhole(const Sample& sample) const {
  if (sample.path.empty()) return IdxImage(sample);
  const absl::StatusOr<std::string> bytes = BytesOf(sample);
  if (!bytes.ok()) return bytes.status();
  return DecodeImage(*bytes);
}

absl::StatusOr<DeepImage> Source::ReadWholeDeep(const Sample& sample) const {
  if (sample.path.empty()) return Deepened(IdxImage(sample));
  const absl::StatusOr<std::string> bytes = BytesOf(sample);
  if (!bytes.ok()) return bytes.status();
  return DecodeDeepImage(*bytes);
}

absl::StatusOr<Image> Source::Read(const Sample& sample) const {
  absl::StatusOr<Image> picture = ReadWhole(sample);
  return picture.ok() && sample.part.width > 0 ? PartOf(*picture, sample.part) : picture;
}

uint64_t Source::Digest() const {
  RunningChecksum digest;
  const auto add = [&digest](const std::string& text) {
    const uint64_t size = text.size();
    digest.Add(&size, sizeof(size));
    digest.Add(text.data(), text.size());
  };
  for (const std::string& name : classes_) add(name);
  for (const IdxArray& array : idx_) digest.Add(array.values.data(), array.values.size());
  std::string looked_at;
  struct stat about {};
  bool known = false;
  for (const Sample& sample : samples_) {
    add(sample.name);
    if (has_sources_) digest.Add(&sample.picture, sizeof(sample.picture));
    int64_t facts[] = {sample.label, sample.split, 0, 0, 0};
    // Tiles of one file follow each other.
    if (sample.path != looked_at) known = !sample.path.empty() && ::stat(sample.path.c_str(), &about) == 0;
    looked_at = sample.path;
    if (known) {
      facts[2] = about.st_size;
      facts[3] = about.st_mtim.tv_sec;
      facts[4] = about.st_mtim.tv_nsec;
    }
    digest.Add(facts, sizeof(facts));
  }
  return digest.value();
}

}  // namespace slackline::images::pictures
