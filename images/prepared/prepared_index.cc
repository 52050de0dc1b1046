#include "images/prepared/prepared_index.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>

#include <nlohmann/json.hpp>
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/storage/checksum.h"
#include "common/text/json_text.h"

namespace slackline::images {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kIndexFormat[] = "slackline-prepared";
constexpr uint64_t kIndexVersion = 1;
// Keeps products far from overflow.
constexpr uint64_t kIndexSideMax = 65535;
constexpr uint64_t kIndexBytesMax = uint64_t{1} << 46;
// Values are written by functions that call themselves for what is in them.
constexpr int kIndexDepthMax = 32;

absl::Status BadIndex(absl::string_view what) { return absl::InvalidArgumentError(what); }

std::string Dump(const Json& json) { return DumpJson(json, 2) + "\n"; }

Json FileToJson(const PreparedFile& file) {
  return {{"name", file.name}, {"bytes", file.bytes}, {"xxh3", absl::StrFormat("%016x", file.checksum)}};
}

Json ShardToJson(const PreparedShard& shard) {
  return {{"rows", shard.rows}, {"images", FileToJson(shard.images)}, {"labels", FileToJson(shard.labels)}};
}

// The member `key` of an object, or null.
const Json& At(const Json& json, const char* key) {
  static const Json* const kNothing = new Json;
  if (!json.is_object()) return *kNothing;
  const auto found = json.find(key);
  return found == json.end() ? *kNothing : *found;
}

struct NumberRange {
  uint64_t min = 0;
  uint64_t max = kIndexBytesMax;
};

absl::StatusOr<uint64_t> Number(const Json& json, const char* key, NumberRange range) {
  const Json& value = At(json, key);
  if (!value.is_number_unsigned() || value.get<uint64_t>() < range.min || value.get<uint64_t>() > range.max) {
    return BadIndex(absl::StrCat("'", key, "' is ", DumpJson(value), "; allowed are whole numbers from ", range.min,
                                 " to ", range.max));
  }
  return value.get<uint64_t>();
}

absl::StatusOr<std::vector<double>> Doubles(const Json& json, const char* key, size_t size) {
  const Json& values = At(json, key);
  if (!values.is_array() || values.size() != size) {
    return BadIndex(absl::StrCat("'", key, "' has no list of ", size, " numbers, one a channel"));
  }
  std::vector<double> numbers;
  for (const Json& value : values) {
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0 ||
        value.get<double>() > 1) {
      return BadIndex(absl::StrCat("'", key, "' has something else than numbers from 0 to 1"));
    }
    numbers.push_back(value.get<double>());
  }
  return numbers;
}

absl::StatusOr<PreparedFile> ParseFile(const Json& json) {
  PreparedFile file;
  const Json& name = At(json, "name");
  if (!name.is_string()) return BadIndex("a file has no 'name'");
  file.name = name.get<std::string>();
  // Files of the folder, and none elsewhere.
  if (file.name.empty() || file.name[0] == '.' || file.name.find('/') != std::string::npos) {
    return BadIndex(absl::StrCat("'", file.name, "' is no name of a file in the folder"));
  }
  const auto bytes = Number(json, "bytes", {});
  if (!bytes.ok()) return BadIndex(absl::StrCat(file.name, ": ", bytes.status().message()));
  file.bytes = *bytes;
  const Json& checksum = At(json, "xxh3");
  if (!checksum.is_string() || checksum.get<std::string>().size() != 16 ||
      !absl::SimpleHexAtoi(checksum.get<std::string>(), &file.checksum)) {
    return BadIndex(absl::StrCat(file.name, ": 'xxh3' is not 16 hexadecimal digits"));
  }
  return file;
}

absl::StatusOr<PreparedShard> ParseShard(const Json& json) {
  PreparedShard shard;
  absl::StatusOr<PreparedFile> images = ParseFile(At(json, "images"));
  if (!images.ok()) return images.status();
  absl::StatusOr<PreparedFile> labels = ParseFile(At(json, "labels"));
  if (!labels.ok()) return labels.status();
  const auto rows = Number(json, "rows", {.min = 1, .max = std::numeric_limits<uint32_t>::max()});
  if (!rows.ok()) return BadIndex(absl::StrCat(images->name, ": ", rows.status().message()));
  shard.images = *std::move(images);
  shard.labels = *std::move(labels);
  shard.rows = *rows;
  return shard;
}

absl::StatusOr<PreparedSplit> ParseSplit(const std::string& name, const Json& json, size_t classes) {
  PreparedSplit split;
  split.name = name;
  const Json& shards = At(json, "shards");
  if (!shards.is_array()) return BadIndex(absl::StrCat("split ", name, " has no list 'shards'"));
  for (const Json& one : shards) {
    absl::StatusOr<PreparedShard> shard = ParseShard(one);
    if (!shard.ok()) return shard.status();
    split.shards.push_back(*std::move(shard));
  }
  const Json& counts = At(json, "class_counts");
  if (!counts.is_array() || counts.size() != classes) {
    return BadIndex(absl::StrCat("split ", name, " has no list 'class_counts' of ", classes, " numbers, one a class"));
  }
  uint64_t sum = 0;
  for (const Json& count : counts) {
    if (!count.is_number_unsigned() || count.get<uint64_t>() > kIndexBytesMax) {
      return BadIndex(absl::StrCat("split ", name, ": 'class_counts' has something else than numbers of images"));
    }
    split.class_counts.push_back(count.get<uint64_t>());
    sum += split.class_counts.back();
  }
  if (sum != split.rows()) {
    return BadIndex(
        absl::StrCat("split ", name, " has ", split.rows(), " images in its shards, but ", sum, " by class"));
  }
  if (sum > std::numeric_limits<uint32_t>::max()) {
    return BadIndex(absl::StrCat("split ", name, " has ", sum, " images; allowed are at most 4294967295"));
  }
  return split;
}

absl::Status ParseClasses(const Json& json, PreparedIndex& index) {
  const Json& classes = At(json, "classes");
  if (!classes.is_array() || classes.empty()) return BadIndex("there is no list 'classes' of names");
  for (const Json& name : classes) {
    if (!name.is_string()) return BadIndex("'classes' has something else than names");
    index.classes.push_back(name.get<std::string>());
  }
  return absl::OkStatus();
}

absl::Status ParseType(const Json& json, PreparedIndex& index) {
  const Json& name = At(json, "dtype");
  if (name.is_null()) return absl::OkStatus();  // there was one type only, once
  const std::optional<PixelType> type = name.is_string() ? PixelTypeNamed(name.get<std::string>()) : std::nullopt;
  if (!type) {
    return BadIndex(absl::StrCat("'dtype' is ", DumpJson(name), "; allowed are ", kPixelTypes));
  }
  index.type = *type;
  return absl::OkStatus();
}

absl::Status ParseShape(const Json& json, PreparedIndex& index) {
  const auto channels = Number(json, "channels", {.min = 1, .max = 3});
  const auto height = Number(json, "height", {.min = 1, .max = kIndexSideMax});
  const auto width = Number(json, "width", {.min = 1, .max = kIndexSideMax});
  for (const auto& side : {channels, height, width}) {
    if (!side.ok()) return side.status();
  }
  index.shape = {static_cast<uint32_t>(*channels), static_cast<uint32_t>(*height), static_cast<uint32_t>(*width)};
  auto mean = Doubles(json, "mean", *channels);
  if (!mean.ok()) return mean.status();
  auto deviation = Doubles(json, "deviation", *channels);
  if (!deviation.ok()) return deviation.status();
  index.mean = *std::move(mean);
  index.deviation = *std::move(deviation);
  return absl::OkStatus();
}

}  // namespace

absl::string_view NameOf(PixelType type) { return type == PixelType::kUint8 ? "uint8" : "float16"; }

std::optional<PixelType> PixelTypeNamed(absl::string_view name) {
  for (const PixelType type : {PixelType::kUint8, PixelType::kFloat16}) {
    if (name == NameOf(type)) return type;
  }
  return std::nullopt;
}

absl::Status CheckAugmentable(PixelType type, uint32_t rand_augment, absl::string_view path) {
  if (type == PixelType::kUint8 || rand_augment == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("data.augment.rand_augment: found ", rand_augment, " with images of ", NameOf(type), " in ", path,
                   "; allowed is 0, or images of uint8 (`slackline prepare --dtype uint8`), which its operations are "
                   "made for. All other augmentation goes with ",
                   NameOf(type)));
}

uint64_t PreparedSplit::rows() const {
  uint64_t rows = 0;
  for (const PreparedShard& shard : shards) rows += shard.rows;
  return rows;
}

absl::Span<const PreparedShard> PreparedSplit::ShardsOf(uint64_t images_max) const {
  const absl::Span<const PreparedShard> all = shards;
  if (images_max == 0) return all;
  size_t count = 0;
  for (uint64_t before = 0; count < all.size() && before < images_max; ++count) before += all[count].rows;
  return all.first(count);
}

const PreparedSplit* PreparedIndex::Find(absl::string_view split) const {
  for (const PreparedSplit& one : splits) {
    if (one.name == split) return &one;
  }
  return nullptr;
}

std::string ToJson(const PreparedIndex& index) {
  Json json = {{"format", kIndexFormat},       {"version", kIndexVersion},
               {"classes", index.classes},     {"channels", index.shape.channels},
               {"height", index.shape.height}, {"width", index.shape.width},
               {"mean", index.mean},           {"deviation", index.deviation}};
  // As it was before there was another type.
  if (index.type != PixelType::kUint8) json["dtype"] = std::string(NameOf(index.type));
  json["splits"] = Json::object();
  for (const PreparedSplit& split : index.splits) {
    Json shards = Json::array();
    for (const PreparedShard& shard : split.shards) shards.push_back(ShardToJson(shard));
    json["splits"][split.name] = {
        {"images", split.rows()}, {"class_counts", split.class_counts}, {"shards", std::move(shards)}};
  }
  json["skipped"] = index.skipped;
  json["settings"] = Json::parse(index.settings, nullptr, /*allow_exceptions=*/false);
  return Dump(json);
}

uint64_t FingerprintOf(const PreparedIndex& index, uint64_t images_max) {
  RunningChecksum checksum;
  const auto add = [&checksum](uint64_t number) { checksum.Add(&number, sizeof(number)); };
  for (const std::string& name : index.classes) {
    add(name.size());
    checksum.Add(name.data(), name.size());
  }
  for (const uint64_t side : {uint64_t{index.shape.channels}, uint64_t{index.shape.height}, uint64_t{index.shape.width},
                              BytesOfPixel(index.type)}) {
    add(side);
  }
  if (const PreparedSplit* train = index.Find("train"); train != nullptr) {
    for (const PreparedShard& shard : train->ShardsOf(images_max)) {
      add(shard.rows);
      add(shard.images.checksum);
      add(shard.labels.checksum);
    }
  }
  return std::max<uint64_t>(1, checksum.value());
}

absl::StatusOr<PreparedIndex> ParsePreparedIndex(absl::string_view text) {
  bool too_deep = false;
  const auto look = [&too_deep](int depth, Json::parse_event_t, const Json&) {
    too_deep |= depth > kIndexDepthMax;
    return depth <= kIndexDepthMax;
  };
  const Json json = Json::parse(text, look, /*allow_exceptions=*/false);
  if (too_deep) return BadIndex(absl::StrCat("it is nested deeper than ", kIndexDepthMax));
  if (!json.is_object()) return BadIndex("it is no JSON object, or was cut short");
  if (At(json, "format") != kIndexFormat) return BadIndex(absl::StrCat("its 'format' is not '", kIndexFormat, "'"));
  const auto version = Number(json, "version", {.min = kIndexVersion, .max = kIndexVersion});
  if (!version.ok()) return version.status();
  PreparedIndex index;
  if (absl::Status status = ParseClasses(json, index); !status.ok()) return status;
  if (absl::Status status = ParseShape(json, index); !status.ok()) return status;
  if (absl::Status status = ParseType(json, index); !status.ok()) return status;
  const Json& splits = At(json, "splits");
  if (!splits.is_object()) return BadIndex("there is no object 'splits'");
  std::set<std::string> names;
  for (const auto& [name, value] : splits.items()) {
    absl::StatusOr<PreparedSplit> split = ParseSplit(name, value, index.classes.size());
    if (!split.ok()) return split.status();
    for (const PreparedShard& shard : split->shards) {
      if (shard.rows > kIndexBytesMax / index.image_bytes()) {
        return BadIndex(absl::StrCat(shard.images.name, ": ", shard.rows, " images of ", index.image_bytes(),
                                     " bytes; allowed are ", kIndexBytesMax, " bytes together"));
      }
      for (const PreparedFile* file : {&shard.images, &shard.labels}) {
        if (!names.insert(file->name).second) return BadIndex(absl::StrCat(file->name, " is named twice"));
      }
    }
    index.splits.push_back(*std::move(split));
  }
  const auto skipped = Number(json, "skipped", {});
  if (!skipped.ok()) return skipped.status();
  index.skipped = *skipped;
  index.settings = DumpJson(At(json, "settings"));
  return index;
}

absl::StatusOr<PreparedIndex> ReadPreparedIndex(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kPreparedIndexFile);
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("there is no ", path, ", which `slackline prepare` writes when all images are prepared"));
  }
  const std::string text(std::istreambuf_iterator<char>(file), {});
  absl::StatusOr<PreparedIndex> index = ParsePreparedIndex(text);
  if (!index.ok()) return BadIndex(absl::StrCat(path, ": ", index.status().message()));
  return index;
}

std::string ShardJson(const PreparedShard& shard) { return Dump(ShardToJson(shard)); }

absl::StatusOr<PreparedShard> ParseShardJson(absl::string_view text) {
  return ParseShard(Json::parse(text, nullptr, /*allow_exceptions=*/false));
}

}  // namespace slackline::images
