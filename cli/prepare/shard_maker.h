// Makes one shard of prepared images: decodes, scales, sums up the pixels, and writes two files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cli/prepare/decoders.h"
#include "images/pictures/form.h"
#include "images/pictures/source.h"
#include "images/prepared/prepared_index.h"

namespace slackline::cli::prepare {

using images::pictures::Fit;
using images::pictures::Form;
using images::pictures::Sample;
using images::pictures::Skipped;
using images::pictures::Source;

// Facts about a finished shard.
struct ShardRecord {
  images::PreparedShard shard;  // rows may be 0: then there are no files
  std::vector<uint64_t> class_counts;
  // Sums over all pixels, by channel. They are exact, so that the order of the pixels does not matter. Floats are in
  // units of kHalfUnits.
  std::vector<uint64_t> sums;
  std::vector<absl::uint128> square_sums;
  std::vector<Skipped> skipped;
};

// Returns the record of a shard as JSON, which is kept until all shards are made.
std::string ToJson(const ShardRecord& record);
// Parses the JSON of a record.
//   kInvalidArgument  not a record, or one with other numbers of classes or channels
absl::StatusOr<ShardRecord> ParseShardRecord(absl::string_view text, size_t classes, size_t channels);

// Makes shards of prepared images, one after the other.
//
// Thread-safety: none.
// Limits:        one shard is in memory at a time, and one image per thread.
class ShardMaker {
 public:
  // Borrows all arguments.
  ShardMaker(const Source& source, const Form& form, images::PixelType type, Decoders& decoders)
      : source_(source), form_(form), type_(type), decoders_(decoders) {}

  // Writes these samples to `folder`/`stem`.images.npy and .labels.npy, in their order. Samples that cannot be read are
  // left out and listed. Calls `look` with the number of finished pictures.
  //   as DurableFile  a file cannot be written
  absl::StatusOr<ShardRecord> Make(absl::Span<const uint32_t> samples, const std::string& folder,
                                   const std::string& stem, const std::function<void(size_t)>& look);

 private:
  size_t image_bytes() const { return form_.shape.values() * images::BytesOfPixel(type_); }
  // Reads a picture, and writes its parts to their places in `pixels_`, in the form that the shard has.
  // `parts`: samples of the picture, each with its place.
  void Fill(absl::Span<const std::pair<const Sample*, size_t>> parts, std::vector<absl::Status>& results);

  const Source& source_;
  const Form& form_;
  const images::PixelType type_;
  Decoders& decoders_;
  std::vector<uint8_t> pixels_;  // all pixels of the shard, as in its file
};

// True if the files of a shard that was made earlier are unchanged. `index` gives shape and type.
bool IsWhole(const std::string& folder, const ShardRecord& record, const images::PreparedIndex& index);

}  // namespace slackline::cli::prepare
