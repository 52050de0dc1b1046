// Makes one shard of prepared images: decodes, scales, sums up, and writes its two files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cli/prepare/decoders.h"
#include "worker/data/prepared_index.h"
#include "worker/pictures/form.h"
#include "worker/pictures/source.h"

namespace slackline::cli::prepare {

using worker::pictures::Fit;
using worker::pictures::Form;
using worker::pictures::Sample;
using worker::pictures::Skipped;
using worker::pictures::Source;

// What is known of a shard once it is made.
struct ShardRecord {
  worker::PreparedShard shard;  // rows may be 0: then there are no files
  std::vector<uint64_t> class_counts;
  // Of all pixels, by channel: exact, so that their order does not matter. Floats are in units of kHalfUnits.
  std::vector<uint64_t> sums;
  std::vector<absl::uint128> square_sums;
  std::vector<Skipped> skipped;
};

// What is kept of a shard until all are made.
std::string ToJson(const ShardRecord& record);
//   kInvalidArgument  no such record, or of other numbers of classes or channels
absl::StatusOr<ShardRecord> ParseShardRecord(absl::string_view text, size_t classes, size_t channels);

// Thread-safety: none.
// Limits:        one shard is in memory at a time, and an image a thread.
class ShardMaker {
 public:
  // Borrows all.
  ShardMaker(const Source& source, const Form& form, worker::PixelType type, Decoders& decoders)
      : source_(source), form_(form), type_(type), decoders_(decoders) {}

  // Writes `folder`/`stem`.images.npy and .labels.npy of these samples, in their order; those that cannot be read are
  // left out and listed. `look` is called with how many are done.
  //   as DurableFile  a file cannot be written
  absl::StatusOr<ShardRecord> Make(absl::Span<const uint32_t> samples, const std::string& folder,
                                   const std::string& stem, const std::function<void(size_t)>& look);

 private:
  // Reads a sample, and writes what the shard has of it.
  absl::Status Fill(uint32_t sample, absl::Span<uint8_t> out) const;

  const Source& source_;
  const Form& form_;
  const worker::PixelType type_;
  Decoders& decoders_;
  std::vector<uint8_t> pixels_;  // of the shard, as its file has them
};

// Whether the files of a shard that was made earlier are still what they were; `index` says the shape and the type.
bool IsWhole(const std::string& folder, const ShardRecord& record, const worker::PreparedIndex& index);

}  // namespace slackline::cli::prepare
