#include "common/checkpoint/model_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/checkpoint/folder.h"
#include "common/optimizer/averaged_weights.h"

namespace slackline::checkpoint {
namespace {

std::vector<std::string> NamesOf(const ShardHeader& header) {
  std::vector<std::string> names;
  for (const Array& array : header.arrays()) names.push_back(array.name());
  return names;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelReader>> ModelReader::Open(const std::filesystem::path& path) {
  absl::StatusOr<Manifest> manifest = ReadManifest(path);
  if (!manifest.ok()) return manifest.status();
  if (manifest->files().empty()) return absl::DataLossError(absl::StrCat(path.string(), " has no shards"));
  std::unique_ptr<ModelReader> reader(new ModelReader(path, *std::move(manifest)));
  if (const auto first = reader->Reader(0); !first.ok()) return first.status();
  return reader;
}

absl::StatusOr<ShardFileReader*> ModelReader::Reader(int file) {
  std::unique_ptr<ShardFileReader>& reader = readers_[static_cast<size_t>(file)];
  if (reader != nullptr) return reader.get();
  absl::StatusOr<std::unique_ptr<ShardFileReader>> opened = ShardFileReader::Open(path_, manifest_.files(file));
  if (absl::IsNotFound(opened.status())) return absl::DataLossError(opened.status().message());
  if (!opened.ok()) return opened.status();
  const std::vector<std::string> names = NamesOf((*opened)->header());
  if (arrays_.empty()) arrays_ = names;
  if (names != arrays_) {
    return absl::DataLossError(absl::StrCat(manifest_.files(file).file(), " of ", path_.string(), " has ",
                                            absl::StrJoin(names, ", "), "; others have ",
                                            absl::StrJoin(arrays_, ", ")));
  }
  reader = *std::move(opened);
  return reader.get();
}

absl::Status ModelReader::Read(size_t array, uint64_t begin, absl::Span<float> out) {
  SLACKLINE_CHECK(array < arrays_.size());
  const bool whole = array == 0 || arrays_[array] == kAveragedWeights;
  const uint64_t elements = whole ? manifest_.elements() : manifest_.trained_elements();
  SLACKLINE_CHECK(out.size() <= elements && begin <= elements - out.size());
  for (int i = 0; i < manifest_.files_size() && !out.empty(); ++i) {
    const wire::CheckpointFile& file = manifest_.files(i);
    if (file.end() <= begin) continue;
    const absl::StatusOr<ShardFileReader*> reader = Reader(i);
    if (!reader.ok()) return reader.status();
    const size_t count = std::min<uint64_t>(out.size(), file.end() - begin);
    const uint64_t has = (*reader)->header().arrays(static_cast<int>(array)).elements();
    if (begin - file.begin() + count > has) {
      return absl::DataLossError(absl::StrCat(file.file(), " of ", path_.string(), " has ", has, " values of ",
                                              arrays_[array], "; element ", begin + count - 1, " is not among them"));
    }
    const absl::Status status = (*reader)->Read(static_cast<int>(array), begin - file.begin(), out.first(count));
    if (!status.ok()) return status;
    out.remove_prefix(count);
    begin += count;
  }
  return absl::OkStatus();
}

absl::StatusOr<ShardHeader> ModelReader::HeaderOf(uint64_t begin, uint64_t end) {
  int best = 0;
  uint64_t most = 0;
  for (int i = 0; i < manifest_.files_size(); ++i) {
    const wire::CheckpointFile& file = manifest_.files(i);
    const uint64_t from = std::max(begin, file.begin()), to = std::min(end, file.end());
    if (to > from && to - from > most) {
      most = to - from;
      best = i;
    }
  }
  const absl::StatusOr<ShardFileReader*> reader = Reader(best);
  if (!reader.ok()) return reader.status();
  return (*reader)->header();
}

}  // namespace slackline::checkpoint
