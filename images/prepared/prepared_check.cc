#include "images/prepared/prepared_check.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/storage/checksum.h"
#include "images/base/halves.h"

namespace slackline::images {
namespace {

absl::Status CheckFile(const MappedFile& mapped, const PreparedFile& file) {
  const uint64_t found = ChecksumOf(mapped.bytes());
  if (found == file.checksum) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrFormat("%s is damaged: its XXH3 is %016x, its index.json says %016x", file.name, found, file.checksum));
}

}  // namespace

absl::Status CheckLabels(const MappedShard& mapped, const PreparedShard& shard, uint64_t classes) {
  for (uint64_t row = 0; row < mapped.rows; ++row) {
    const int64_t label = mapped.label(row);
    if (label >= 0 && static_cast<uint64_t>(label) < classes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(shard.labels.name, ": the label of row ", row, " is ", label, "; allowed are 0 to ", classes - 1));
  }
  return absl::OkStatus();
}

absl::Status CheckPixels(const MappedShard& mapped, const PreparedShard& shard, const PreparedIndex& index) {
  if (index.type == PixelType::kUint8) return absl::OkStatus();
  for (uint64_t row = 0; row < mapped.rows; ++row) {
    const absl::Status status =
        CheckHalves(shard.images.name, row, mapped.pixels + row * index.image_bytes(), index.shape.values());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckBytes(const MappedShard& mapped, const PreparedShard& shard) {
  absl::Status status = mapped.pixels != nullptr ? CheckFile(mapped.images, shard.images) : absl::OkStatus();
  if (status.ok() && mapped.label_bytes != nullptr) status = CheckFile(mapped.labels, shard.labels);
  return status;
}

}  // namespace slackline::images
