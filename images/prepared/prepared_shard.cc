#include "images/prepared/prepared_shard.h"

#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "images/base/npy.h"

namespace slackline::images {
namespace {

static_assert(std::endian::native == std::endian::little, "labels and halves are little-endian");

struct Expected {
  absl::string_view type;
  std::vector<uint64_t> shape;
  uint64_t value_bytes = 1;
};

std::string Describe(absl::string_view type, const std::vector<uint64_t>& shape) {
  return absl::StrCat("type ", type, " and shape (", absl::StrJoin(shape, ", "), ")");
}

// Maps the file; `data_offset` is where its values begin.
absl::StatusOr<MappedFile> OpenArray(const std::string& path, const PreparedFile& file, const Expected& expected,
                                     uint64_t& data_offset) {
  absl::StatusOr<MappedFile> mapped = MappedFile::Open(path);
  if (!mapped.ok()) return mapped;
  const uint64_t bytes = mapped->bytes().size();
  if (bytes != file.bytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has ", bytes, " bytes; its index.json says ", file.bytes,
                                                   bytes < file.bytes ? ": it was cut short" : ""));
  }
  const absl::StatusOr<NpyHeader> header = ParseNpyHeader(mapped->bytes().substr(0, kNpyHeaderBytesMax));
  if (!header.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", header.status().message()));
  if (header->type != expected.type || header->shape != expected.shape) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has ", Describe(header->type, header->shape),
                                                   "; its index.json needs ", Describe(expected.type, expected.shape)));
  }
  uint64_t values = expected.value_bytes;
  for (const uint64_t side : expected.shape) values *= side;
  if (bytes != header->data_offset + values) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has ", bytes, " bytes; a header of ", header->data_offset,
                                                   " and values of ", values, " bytes need ",
                                                   header->data_offset + values));
  }
  data_offset = header->data_offset;
  return mapped;
}

}  // namespace

absl::string_view NpyTypeOf(PixelType type) { return type == PixelType::kUint8 ? kNpyUint8 : kNpyFloat16; }

int64_t MappedShard::label(uint64_t row) const {
  int64_t value;
  std::memcpy(&value, label_bytes + row * sizeof(value), sizeof(value));
  return value;
}

Locate InFolder(const std::string& folder) {
  return [folder](const PreparedFile& file) -> absl::StatusOr<HeldFile> {
    return HeldFile{.path = absl::StrCat(folder, "/", file.name)};
  };
}

absl::StatusOr<MappedShard> OpenShard(const Locate& locate, const PreparedShard& shard, const PreparedIndex& index) {
  const ImageShape& shape = index.shape;
  MappedShard mapped;
  const absl::StatusOr<HeldFile> images_file = locate(shard.images);
  if (!images_file.ok()) return images_file.status();
  const absl::StatusOr<HeldFile> labels_file = locate(shard.labels);
  if (!labels_file.ok()) return labels_file.status();
  mapped.images_hold = images_file->hold;
  mapped.labels_hold = labels_file->hold;
  uint64_t offset = 0;
  absl::StatusOr<MappedFile> images = OpenArray(images_file->path, shard.images,
                                                {.type = NpyTypeOf(index.type),
                                                 .shape = {shard.rows, shape.channels, shape.height, shape.width},
                                                 .value_bytes = BytesOfPixel(index.type)},
                                                offset);
  if (!images.ok()) return images.status();
  mapped.images = *std::move(images);
  mapped.pixels = reinterpret_cast<const uint8_t*>(mapped.images.bytes().data()) + offset;
  absl::StatusOr<MappedFile> labels =
      OpenArray(labels_file->path, shard.labels,
                {.type = kNpyInt64, .shape = {shard.rows}, .value_bytes = sizeof(int64_t)}, offset);
  if (!labels.ok()) return labels.status();
  mapped.labels = *std::move(labels);
  mapped.label_bytes = mapped.labels.bytes().data() + offset;
  mapped.rows = shard.rows;
  return mapped;
}

}  // namespace slackline::images
