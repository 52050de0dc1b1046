#include "cli/prepare/shard_maker.h"

#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "common/storage/checksum.h"
#include "common/storage/durable_file.h"
#include "common/text/json_text.h"
#include "images/base/halves.h"
#include "images/base/npy.h"
#include "images/prepared/prepared_check.h"
#include "images/prepared/prepared_shard.h"

namespace slackline::cli::prepare {
namespace {

using Json = nlohmann::ordered_json;

// Writes an array of NumPy's format, and says what it is in `file`.
absl::Status WriteArray(const std::string& folder, const std::string& header, absl::string_view values,
                        images::PreparedFile& file) {
  DurableFile out(absl::StrCat(folder, "/", file.name));
  absl::Status status = out.Open();
  if (status.ok()) status = out.Write(header.data(), header.size());
  if (status.ok()) status = out.Write(values.data(), values.size());
  if (status.ok()) status = out.Commit();
  RunningChecksum checksum;
  checksum.Add(header.data(), header.size());
  checksum.Add(values.data(), values.size());
  file.bytes = header.size() + values.size();
  file.checksum = checksum.value();
  return status;
}

absl::StatusOr<std::vector<uint64_t>> Numbers(const Json& json, const char* key, size_t size) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array() || found->size() != size) {
    return absl::InvalidArgumentError(absl::StrCat("no list '", key, "' of ", size));
  }
  std::vector<uint64_t> numbers;
  for (const Json& value : *found) {
    if (!value.is_number_unsigned()) return absl::InvalidArgumentError(absl::StrCat("'", key, "' has no numbers"));
    numbers.push_back(value.get<uint64_t>());
  }
  return numbers;
}

// The same of halves.
void AddUpHalves(absl::Span<const uint8_t> halves, uint32_t channels, ShardRecord& record) {
  const size_t plane = halves.size() / sizeof(uint16_t) / channels;
  const uint8_t* next = halves.data();
  for (uint32_t c = 0; c < channels; ++c) {
    uint64_t sum = 0;
    absl::uint128 square_sum = 0;
    for (size_t p = 0; p < plane; ++p, next += sizeof(uint16_t)) {
      uint16_t code;
      std::memcpy(&code, next, sizeof(code));
      const uint64_t units = images::UnitsOfHalf(code);
      sum += units;
      square_sum += units * units;
    }
    record.sums[c] += sum;
    record.square_sums[c] += square_sum;
  }
}

void AddUp(absl::Span<const uint8_t> pixels, uint32_t channels, ShardRecord& record) {
  const size_t plane = pixels.size() / channels;
  for (uint32_t c = 0; c < channels; ++c) {
    uint64_t sum = 0, square_sum = 0;
    for (const uint8_t value : pixels.subspan(c * plane, plane)) {
      sum += value;
      square_sum += uint32_t{value} * value;
    }
    record.sums[c] += sum;
    record.square_sums[c] += square_sum;
  }
}

}  // namespace

std::string ToJson(const ShardRecord& record) {
  std::vector<uint64_t> low, high;
  for (const absl::uint128& sum : record.square_sums) {
    low.push_back(absl::Uint128Low64(sum));
    high.push_back(absl::Uint128High64(sum));
  }
  Json json = {
      {"class_counts", record.class_counts}, {"sums", record.sums}, {"square_sums", low}, {"square_sums_high", high}};
  json["shard"] = record.shard.rows == 0 ? Json() : Json::parse(images::ShardJson(record.shard));
  json["skipped"] = Json::array();
  // Names are bytes that may be no UTF-8, which JSON does not have: each byte becomes a character.
  const auto bytes = [](const std::string& text) {
    Json list = Json::array();
    for (const char byte : text) list.push_back(static_cast<uint8_t>(byte));
    return list;
  };
  for (const Skipped& one : record.skipped) json["skipped"].push_back({bytes(one.name), bytes(one.reason)});
  return DumpJson(json) + "\n";
}

absl::StatusOr<ShardRecord> ParseShardRecord(absl::string_view text, size_t classes, size_t channels) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("shard") || !json.contains("skipped")) {
    return absl::InvalidArgumentError("no record of a shard");
  }
  ShardRecord record;
  auto counts = Numbers(json, "class_counts", classes);
  auto sums = Numbers(json, "sums", channels);
  auto square_sums = Numbers(json, "square_sums", channels);
  // Records of before there were halves have none.
  absl::StatusOr<std::vector<uint64_t>> high = std::vector<uint64_t>(channels);
  if (json.contains("square_sums_high")) high = Numbers(json, "square_sums_high", channels);
  for (const auto* one : {&counts, &sums, &square_sums, &high}) {
    if (!one->ok()) return one->status();
  }
  record.class_counts = *std::move(counts);
  record.sums = *std::move(sums);
  for (size_t c = 0; c < channels; ++c) record.square_sums.push_back(absl::MakeUint128((*high)[c], (*square_sums)[c]));
  if (!json["shard"].is_null()) {
    auto shard = images::ParseShardJson(DumpJson(json["shard"]));
    if (!shard.ok()) return shard.status();
    record.shard = *std::move(shard);
  }
  const auto text_of = [](const Json& list) {
    std::string out;
    for (const Json& byte : list) {
      if (byte.is_number_unsigned()) out.push_back(static_cast<char>(byte.get<uint64_t>()));
    }
    return out;
  };
  for (const Json& one : json["skipped"]) {
    if (!one.is_array() || one.size() != 2) return absl::InvalidArgumentError("'skipped' has no pairs");
    record.skipped.push_back({text_of(one[0]), text_of(one[1])});
  }
  return record;
}

void ShardMaker::Fill(absl::Span<const std::pair<const Sample*, size_t>> parts, std::vector<absl::Status>& results) {
  const auto fill = [&](auto picture, const auto& write) {
    for (const auto& [sample, place] : parts) {
      if (picture.ok()) {
        // A picture that is not cut is a part of itself, and the only one.
        auto image = sample->part.width > 0 ? PartOf(*picture, sample->part) : std::move(picture);
        results[place] =
            image.ok() ? write(*std::move(image), absl::MakeSpan(pixels_).subspan(place * image_bytes(), image_bytes()))
                       : image.status();
      } else {
        results[place] = picture.status();
      }
    }
  };
  if (type_ == images::PixelType::kUint8) {
    return fill(source_.ReadWhole(*parts.front().first), [&](images::pictures::Image image, absl::Span<uint8_t> out) {
      return Shape(std::move(image), form_, out);
    });
  }
  fill(source_.ReadWholeDeep(*parts.front().first), [&](images::pictures::DeepImage image, absl::Span<uint8_t> out) {
    std::vector<uint16_t> deep(form_.shape.values());
    absl::Status shaped = Shape(std::move(image), form_, absl::MakeSpan(deep));
    if (shaped.ok()) images::WriteHalves(deep, out.data());
    return shaped;
  });
}

absl::StatusOr<ShardRecord> ShardMaker::Make(absl::Span<const uint32_t> samples, const std::string& folder,
                                             const std::string& stem, const std::function<void(size_t)>& look) {
  const size_t image_bytes = this->image_bytes();
  pixels_.resize(samples.size() * image_bytes);
  std::vector<absl::Status> results(samples.size());
  // Each picture is decoded once, however many tiles of it are here.
  std::map<std::tuple<absl::string_view, uint64_t, uint32_t, uint32_t>, std::vector<std::pair<const Sample*, size_t>>>
      found;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& sample = source_.samples()[samples[i]];
    found[{sample.path, sample.offset, sample.idx_file, sample.row}].push_back({&sample, i});
  }
  std::vector<const std::vector<std::pair<const Sample*, size_t>>*> pictures;
  for (const auto& [key, parts] : found) pictures.push_back(&parts);
  decoders_.Run(
      pictures.size(), [&](size_t i) { Fill(*pictures[i], results); }, look);

  ShardRecord record;
  record.class_counts.resize(source_.classes().size());
  record.sums.resize(form_.shape.channels);
  record.square_sums.resize(form_.shape.channels);
  std::vector<int64_t> labels;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& sample = source_.samples()[samples[i]];
    if (!results[i].ok()) {
      record.skipped.push_back({sample.name, std::string(results[i].message())});
      continue;
    }
    uint8_t* to = pixels_.data() + labels.size() * image_bytes;
    if (labels.size() != i) std::memmove(to, pixels_.data() + i * image_bytes, image_bytes);
    const auto add_up = type_ == images::PixelType::kUint8 ? AddUp : AddUpHalves;
    add_up({to, image_bytes}, form_.shape.channels, record);
    ++record.class_counts[sample.label];
    labels.push_back(sample.label);
  }
  images::PreparedShard& shard = record.shard;
  shard.rows = labels.size();
  if (shard.rows == 0) return record;
  shard.images.name = stem + ".images.npy";
  shard.labels.name = stem + ".labels.npy";
  const std::vector<uint64_t> shape = {shard.rows, form_.shape.channels, form_.shape.height, form_.shape.width};
  absl::Status status =
      WriteArray(folder, images::NpyHeaderText(images::NpyTypeOf(type_), shape),
                 {reinterpret_cast<const char*>(pixels_.data()), shard.rows * image_bytes}, shard.images);
  if (status.ok()) {
    status = WriteArray(folder, images::NpyHeaderText(images::kNpyInt64, {shard.rows}),
                        {reinterpret_cast<const char*>(labels.data()), labels.size() * sizeof(int64_t)}, shard.labels);
  }
  if (!status.ok()) return status;
  return record;
}

bool IsWhole(const std::string& folder, const ShardRecord& record, const images::PreparedIndex& index) {
  if (record.shard.rows == 0) return true;
  const absl::StatusOr<images::MappedShard> mapped = images::OpenShard(images::InFolder(folder), record.shard, index);
  return mapped.ok() && images::CheckBytes(*mapped, record.shard).ok();
}

}  // namespace slackline::cli::prepare
