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

Expected ExpectedPixels(const PreparedShard& shard, const PreparedIndex& index) {
  const ImageShape& shape = index.shape;
  return {.type = NpyTypeOf(index.type),
          .shape = {shard.rows, shape.channels, shape.height, shape.width},
          .value_bytes = BytesOfPixel(index.type)};
}

// Returns where the values begin in a file that has the bytes `content`.
absl::StatusOr<uint64_t> CheckArray(absl::string_view content, const std::string& path, const PreparedFile& file,
                                    const Expected& expected) {
  const uint64_t bytes = content.size();
  if (bytes != file.bytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has ", bytes, " bytes; its index.json says ", file.bytes,
                                                   bytes < file.bytes ? ": it was cut short" : ""));
  }
  const absl::StatusOr<NpyHeader> header = ParseNpyHeader(content.substr(0, kNpyHeaderBytesMax));
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
  return header->data_offset;
}

// Maps the file; `values` is where its values begin.
absl::Status OpenArray(const HeldFile& held, const PreparedFile& file, const Expected& expected, MappedFile& mapped,
                       const char*& values) {
  absl::StatusOr<MappedFile> opened = MappedFile::Open(held.path);
  if (!opened.ok()) return opened.status();
  const absl::StatusOr<uint64_t> offset = CheckArray(opened->bytes(), held.path, file, expected);
  if (!offset.ok()) return offset.status();
  mapped = *std::move(opened);
  values = mapped.bytes().data() + *offset;
  return absl::OkStatus();
}

}  // namespace

absl::string_view NpyTypeOf(PixelType type) { return type == PixelType::kUint8 ? kNpyUint8 : kNpyFloat16; }

int64_t MappedShard::label(uint64_t row) const {
  int64_t value;
  std::memcpy(&value, label_bytes + row * sizeof(value), sizeof(value));
  return value;
}

Locate InFolder(const std::string& folder) {
  return [folder](const PreparedFile& file, const FetchWatch& /*watch*/) -> absl::StatusOr<HeldFile> {
    return HeldFile{.path = absl::StrCat(folder, "/", file.name)};
  };
}

absl::StatusOr<MappedShard> OpenPixels(const Locate& locate, const PreparedShard& shard, const PreparedIndex& index,
                                       const FetchWatch& watch) {
  const absl::StatusOr<HeldFile> held = locate(shard.images, watch);
  if (!held.ok()) return held.status();
  MappedShard mapped;
  mapped.images_hold = held->hold;
  mapped.rows = shard.rows;
  const char* values = nullptr;
  absl::Status opened = OpenArray(*held, shard.images, ExpectedPixels(shard, index), mapped.images, values);
  if (!opened.ok()) return opened;
  mapped.pixels = reinterpret_cast<const uint8_t*>(values);
  return mapped;
}

absl::StatusOr<MappedShard> OpenLabels(const Locate& locate, const PreparedShard& shard) {
  const absl::StatusOr<HeldFile> held = locate(shard.labels, nullptr);
  if (!held.ok()) return held.status();
  MappedShard mapped;
  mapped.labels_hold = held->hold;
  mapped.rows = shard.rows;
  absl::Status opened =
      OpenArray(*held, shard.labels, {.type = kNpyInt64, .shape = {shard.rows}, .value_bytes = sizeof(int64_t)},
                mapped.labels, mapped.label_bytes);
  if (!opened.ok()) return opened;
  return mapped;
}

absl::StatusOr<MappedShard> OpenShard(const Locate& locate, const PreparedShard& shard, const PreparedIndex& index) {
  absl::StatusOr<MappedShard> mapped = OpenPixels(locate, shard, index);
  if (!mapped.ok()) return mapped;
  absl::StatusOr<MappedShard> labels = OpenLabels(locate, shard);
  if (!labels.ok()) return labels;
  mapped->labels = std::move(labels->labels);
  mapped->label_bytes = labels->label_bytes;
  mapped->labels_hold = std::move(labels->labels_hold);
  return mapped;
}

absl::StatusOr<MappedShard> PixelsInMemory(std::shared_ptr<const std::string> file, const PreparedShard& shard,
                                           const PreparedIndex& index) {
  const absl::StatusOr<uint64_t> offset =
      CheckArray(*file, shard.images.name, shard.images, ExpectedPixels(shard, index));
  if (!offset.ok()) return offset.status();
  MappedShard mapped;
  mapped.pixels = reinterpret_cast<const uint8_t*>(file->data()) + *offset;
  mapped.rows = shard.rows;
  mapped.images_hold = std::move(file);
  return mapped;
}

}  // namespace slackline::images
