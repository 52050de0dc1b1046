// Prepared images of 16-bit floats: what is refused, and that training uses them as it uses those of uint8.
#include "images/base/halves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/storage/checksum.h"
#include "images/base/npy.h"
#include "images/dataset/dataset.h"
#include "images/dataset/prefetcher.h"
#include "images/prepared/prepared_index.h"
#include "tests/images/test_data.h"

namespace slackline::images::halves_test {
namespace {

using ::testing::HasSubstr;

constexpr ImageShape kHalfShape{.channels = 3, .height = 10, .width = 12};
constexpr uint64_t kHalfImages = 40;
constexpr uint64_t kFirstRows = 15;       // of the first shard
constexpr float kHalfStep = 1.0f / 2048;  // what rounding to a half changes 1 by at most

// The halves of deep values.
std::string Halves(const std::vector<uint16_t>& deep) {
  std::string bytes(2 * deep.size(), '\0');
  WriteHalves(deep, reinterpret_cast<uint8_t*>(bytes.data()));
  return bytes;
}

// The same smooth images as uint8 and as float16, in a folder each, of two shards.
class HalvesTest : public ::testing::Test {
 protected:
  HalvesTest() {
    for (uint64_t i = 0; i < kHalfImages * kHalfShape.values(); ++i) {
      pixels_.push_back(
          static_cast<uint8_t>(std::lround(127 + 120 * std::sin(static_cast<double>(i * i % 1009) / 99))));
    }
    Write(bytes_, bytes_index_, PixelType::kUint8);
    Write(halves_, halves_index_, PixelType::kFloat16);
  }

  PreparedFile WriteOne(const TemporaryFolder& folder, const std::string& name, const std::string& content) {
    WriteFile(folder / name, {content.begin(), content.end()});
    return {.name = name, .bytes = content.size(), .checksum = ChecksumOf(content)};
  }
  std::string Images(PixelType type, uint64_t first, uint64_t rows) {
    const auto begin = pixels_.begin() + static_cast<int64_t>(first * kHalfShape.values());
    const Bytes part(begin, begin + static_cast<int64_t>(rows * kHalfShape.values()));
    const std::vector<uint64_t> shape = {rows, kHalfShape.channels, kHalfShape.height, kHalfShape.width};
    if (type == PixelType::kUint8) return NpyHeaderText(kNpyUint8, shape) + std::string(part.begin(), part.end());
    std::vector<uint16_t> deep;
    for (const uint8_t value : part) deep.push_back(static_cast<uint16_t>(257 * value));
    return NpyHeaderText(kNpyFloat16, shape) + Halves(deep);
  }
  void Write(const TemporaryFolder& folder, PreparedIndex& index, PixelType type) {
    index = {.classes = {"ash"},
             .shape = kHalfShape,
             .type = type,
             .mean = {0.5, 0.25, 0.1},
             .deviation = {0.5, 0.2, 0},
             .splits = {{.name = "train", .shards = {}, .class_counts = {kHalfImages}}},
             .settings = "{}"};
    for (const uint64_t first : {uint64_t{0}, kFirstRows}) {
      const uint64_t rows = first == 0 ? kFirstRows : kHalfImages - kFirstRows;
      const std::string stem = first == 0 ? "a" : "b";
      index.splits[0].shards.push_back(
          {.images = WriteOne(folder, absl::StrCat(stem, ".images.npy"), Images(type, first, rows)),
           .labels = WriteOne(folder, absl::StrCat(stem, ".labels.npy"),
                              NpyHeaderText(kNpyInt64, {rows}) + std::string(rows * 8, '\0')),
           .rows = rows});
    }
  }
  Dataset OpenBytes() { return *Dataset::OpenPrepared(bytes_.path(), bytes_index_, "train", {}); }
  absl::StatusOr<Dataset> OpenHalves(bool verify = false) {
    return Dataset::OpenPrepared(halves_.path(), halves_index_, "train", {.images_max = 0, .verify = verify});
  }
  // Puts a half in the place of one pixel of row 3 of the second shard, and its checksum into the index.
  void Damage(uint16_t half) {
    std::string whole = Images(PixelType::kFloat16, kFirstRows, kHalfImages - kFirstRows);
    const size_t at = whole.size() - (kHalfImages - kFirstRows - 3) * 2 * kHalfShape.values() + 2 * 7;
    whole[at] = static_cast<char>(half & 0xff);
    whole[at + 1] = static_cast<char>(half >> 8);
    halves_index_.splits[0].shards[1].images = WriteOne(halves_, "b.images.npy", whole);
  }

  TemporaryFolder bytes_, halves_;
  PreparedIndex bytes_index_, halves_index_;
  Bytes pixels_;
};

TEST_F(HalvesTest, BatchesAreThoseOfUint8ToThePrecisionOfAHalf) {
  const Dataset bytes = OpenBytes();
  const auto halves = OpenHalves(/*verify=*/true);
  ASSERT_TRUE(halves.ok()) << halves.status();
  std::vector<uint32_t> all(kHalfImages);
  for (uint32_t i = 0; i < kHalfImages; ++i) all[i] = (7 * i) % kHalfImages;
  struct Case {
    const char* name;
    Augment augment;
    // What rounding of uint8 makes, one for each of its operations.
    float steps;
  };
  for (const Case& one : {Case{"nothing", {}, 0}, Case{"flip", {.flip_horizontal = true, .flip_vertical = true}, 0},
                          Case{"padding", {.crop_padding = 3}, 0}, Case{"mixup", {.mixup_alpha = 0.4}, 0},
                          Case{"cutmix", {.flip_horizontal = true, .cutmix_alpha = 1}, 0},
                          Case{"crop", {.crop_area_min = 0.3}, 0.51f}, Case{"brightness", {.brightness = 0.4}, 0.51f},
                          Case{"contrast", {.contrast = 0.4}, 1.5f}, Case{"saturation", {.saturation = 0.4}, 1.5f},
                          Case{"grey", {.grey = 0.5}, 0.51f}, Case{"blur", {.blur = 0.5}, 0.51f}}) {
    const Variation variation{.augment = one.augment, .seed = 3, .epoch = 2};
    Batch expected, found;
    ASSERT_TRUE(bytes.Load(all, 0, 1, expected, &variation).ok());
    ASSERT_TRUE(halves->Load(all, 0, 1, found, &variation).ok());
    ASSERT_EQ(found.images.size(), expected.images.size());
    EXPECT_EQ(found.labels, expected.labels);
    EXPECT_EQ(found.share, expected.share);
    float worst = 0;
    for (size_t i = 0; i < found.images.size(); ++i) {
      const size_t c = i / (kHalfShape.height * kHalfShape.width) % kHalfShape.channels;
      const auto deviation = static_cast<float>(c == 2 ? 1 : halves_index_.deviation[c]);
      worst = std::max(worst, deviation * std::abs(found.images[i] - expected.images[i]));
    }
    EXPECT_LE(worst, 1.5f * kHalfStep + one.steps / 255) << one.name;
    if (one.steps == 0) continue;
    EXPECT_GT(worst, 0.2f / 255) << one.name << ": nothing has happened";
  }
}

// A range that was begun and given up goes on elsewhere, in batches of another size, with the same images to the bit.
TEST_F(HalvesTest, BatchesFromTheMiddleOfAnEpochAreTheSame) {
  const Augment augment{.flip_horizontal = true, .crop_padding = 2, .crop_area_min = 0.5, .contrast = 0.2, .blur = 0.3};
  const std::vector<uint32_t> order = EpochOrder(kHalfImages, 3, 1);
  const auto images = [&](size_t from, uint32_t batch_size, uint32_t threads) {
    const Dataset data = *OpenHalves();
    Prefetcher prefetcher(data, {}, 2, augment, /*seed=*/3, threads);
    prefetcher.Start({order.begin() + static_cast<int64_t>(from), order.end()}, batch_size, 1);
    std::vector<float> values;
    for (;;) {
      auto batch = *prefetcher.Next(absl::Seconds(60));
      if (batch == nullptr) return values;
      values.insert(values.end(), batch->images.begin(), batch->images.end());
    }
  };
  const std::vector<float> whole = images(0, 16, 1), rest = images(23, 7, 2);
  EXPECT_EQ(rest, std::vector<float>(whole.begin() + static_cast<int64_t>(23 * kHalfShape.values()), whole.end()));
}

TEST_F(HalvesTest, ValuesThatAreNoPixelsAreNamed) {
  const std::vector<std::pair<uint16_t, std::string>> wrong = {{0x7c00, "inf"},  {0xfc00, "-inf"},   {0x7bff, "65504"},
                                                               {0x7e00, "nan"},  {0x3c01, "1.0009"}, {0xbc00, "-1"},
                                                               {0x8001, "-5.96"}};
  for (const auto& [half, value] : wrong) {
    Damage(half);
    const std::string words = "b.images.npy: value 7 of row 3 is ";
    // Found where all is read, and else when it is needed.
    EXPECT_EQ(OpenHalves(/*verify=*/true).status().code(), absl::StatusCode::kInvalidArgument);
    const auto data = OpenHalves();
    ASSERT_TRUE(data.ok()) << data.status();
    Batch batch;
    EXPECT_TRUE(data->Load({17, 19}, 0, 1, batch).ok());
    const absl::Status loaded = data->Load({17, 18}, 0, 1, batch);
    EXPECT_EQ(loaded.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(loaded.message()), HasSubstr(absl::StrCat(words, value)));
    EXPECT_THAT(std::string(loaded.message()), HasSubstr("allowed are numbers from 0 to 1"));
  }
}

TEST_F(HalvesTest, AnotherTypeThanTheIndexSaysIsRefused) {
  halves_index_.type = PixelType::kUint8;
  EXPECT_THAT(std::string(OpenHalves().status().message()),
              HasSubstr("a.images.npy has type <f2 and shape (15, 3, 10, 12); its index.json needs type |u1"));
  bytes_index_.type = PixelType::kFloat16;
  EXPECT_THAT(std::string(Dataset::OpenPrepared(bytes_.path(), bytes_index_, "train", {}).status().message()),
              HasSubstr("a.images.npy has type |u1 and shape (15, 3, 10, 12); its index.json needs type <f2"));
  // A header that says halves over values of half the size.
  halves_index_.type = PixelType::kFloat16;
  const std::string whole = Images(PixelType::kFloat16, 0, 15);
  const std::string cut = whole.substr(0, whole.size() - 15 * kHalfShape.values());
  halves_index_.splits[0].shards[0].images = WriteOne(halves_, "a.images.npy", cut);
  EXPECT_THAT(std::string(OpenHalves().status().message()), HasSubstr("values of 10800 bytes need"));
}

TEST_F(HalvesTest, TheIndexSaysTheTypeAndOthersAreRefused) {
  EXPECT_THAT(ToJson(bytes_index_), ::testing::Not(HasSubstr("dtype")));
  const std::string text = ToJson(halves_index_);
  EXPECT_EQ(ParsePreparedIndex(ToJson(bytes_index_))->type, PixelType::kUint8);
  const auto index = ParsePreparedIndex(text);
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(index->type, PixelType::kFloat16);
  EXPECT_EQ(index->image_bytes(), 720u);
  EXPECT_EQ(ToJson(*index), text);
  for (const std::string other : {"\"float64\"", "\"\"", "2", "[\"float16\"]", "{}"}) {
    std::string wrong = text;
    wrong.replace(wrong.find("\"float16\""), 9, other);
    EXPECT_THAT(std::string(ParsePreparedIndex(wrong).status().message()), HasSubstr("allowed are uint8, float16"));
  }
}

TEST_F(HalvesTest, RandAugmentIsRefused) {
  EXPECT_TRUE(CheckAugmentable(PixelType::kFloat16, 0, "here").ok());
  EXPECT_TRUE(CheckAugmentable(PixelType::kUint8, 2, "here").ok());
  EXPECT_THAT(std::string(CheckAugmentable(PixelType::kFloat16, 2, "here").message()),
              HasSubstr("data.augment.rand_augment: found 2 with images of float16 in here; allowed is 0"));
}

// All there are from 0 to 1, against what they are as numbers.
TEST(Halves, MinusZeroIsZero) {
  const std::array<uint8_t, 4> halves = {0x00, 0x80, 0x00, 0x3c};
  EXPECT_TRUE(CheckHalves("file", 0, halves.data(), 2).ok());
}

TEST(Halves, UnitsAreExact) {
  for (uint16_t code = 0; code <= 0x3c00; ++code) {
    float value = -1;
    ReadHalves(reinterpret_cast<const uint8_t*>(&code), {&value, 1});
    EXPECT_EQ(static_cast<double>(UnitsOfHalf(code)), static_cast<double>(value) * kHalfUnits) << code;
  }
  EXPECT_EQ(UnitsOfHalf(0x3c00), kHalfUnits);
}

TEST(Halves, DeepValuesBecomeTheNearest) {
  std::vector<uint16_t> all(65536);
  for (uint32_t i = 0; i < 65536; ++i) all[i] = static_cast<uint16_t>(i);
  const std::string bytes = Halves(all);
  std::vector<float> values(all.size());
  ReadHalves(reinterpret_cast<const uint8_t*>(bytes.data()), absl::MakeSpan(values));
  EXPECT_EQ(values.front(), 0);
  EXPECT_EQ(values.back(), 1);
  for (size_t i = 0; i < values.size(); ++i) {
    const double wanted = static_cast<double>(i) / 65535;
    ASSERT_LE(std::abs(values[i] - wanted), std::max(wanted, 0x1p-14) / 2048 * 1.001) << i;
  }
}

}  // namespace
}  // namespace slackline::images::halves_test
