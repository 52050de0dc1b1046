// Folders as `slackline prepare` leaves them, whole and broken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/storage/checksum.h"
#include "images/base/npy.h"
#include "images/dataset/dataset.h"
#include "images/prepared/prepared_index.h"
#include "tests/images/test_data.h"

namespace slackline::images::prepared_test {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

Bytes BytesOf(const std::string& text) { return {text.begin(), text.end()}; }

// Five images of 2 x 1 x 3 in two shards, with labels 0, 1, 0, 1, 2 of three classes; value v of image i is 20 i + v.
class PreparedTest : public ::testing::Test {
 protected:
  PreparedTest() {
    index_.classes = {"ash", "birch", "cedar"};
    index_.shape = {.channels = 2, .height = 1, .width = 3};
    index_.mean = {0.25, 0.5};
    index_.deviation = {0.5, 0};
    index_.settings = "{}";
    index_.splits = {{.name = "train", .shards = {}, .class_counts = {2, 2, 1}},
                     {.name = "test", .shards = {}, .class_counts = {0, 0, 0}}};
    index_.splits[0].shards = {WriteShard("train-00000", 0, {0, 1, 0}), WriteShard("train-00001", 3, {1, 2})};
  }

  PreparedShard WriteShard(const std::string& stem, uint8_t first, const std::vector<int64_t>& labels) {
    const uint64_t rows = labels.size();
    std::string pixels = NpyHeaderText(kNpyUint8, {rows, 2, 1, 3});
    for (uint8_t i = 0; i < rows; ++i) {
      for (int v = 0; v < 6; ++v) pixels.push_back(static_cast<char>(20 * (first + i) + v));
    }
    std::string values = NpyHeaderText(kNpyInt64, {rows});
    values.append(reinterpret_cast<const char*>(labels.data()), rows * sizeof(int64_t));
    return {.images = Write(stem + ".images.npy", pixels), .labels = Write(stem + ".labels.npy", values), .rows = rows};
  }
  PreparedFile Write(const std::string& name, const std::string& content) {
    WriteFile(folder_ / name, BytesOf(content));
    return {.name = name, .bytes = content.size(), .checksum = ChecksumOf(content)};
  }
  absl::StatusOr<Dataset> Open(const Dataset::PreparedOptions& options = {}, const std::string& split = "train") {
    return Dataset::OpenPrepared(folder_.path(), index_, split, options);
  }
  void ExpectRefused(absl::StatusCode code, const std::string& words) {
    const absl::Status status = Open().status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }

  TemporaryFolder folder_;
  PreparedIndex index_;
};

TEST_F(PreparedTest, ImagesOfAllShardsAreNormalisedByChannel) {
  const absl::StatusOr<Dataset> data = Open();
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->size(), 5u);
  EXPECT_EQ(data->channels(), 2u);
  EXPECT_EQ(data->label_max(), 2u);
  EXPECT_THAT(data->LabelCounts(3), ElementsAre(2, 2, 1));
  Batch batch;
  ASSERT_TRUE(data->Load({4, 1, 2, 3}, /*mean=*/9, /*deviation=*/9, batch).ok());
  EXPECT_THAT(batch.labels, ElementsAre(2, 1, 0, 1));
  const int images[] = {4, 1, 2, 3};
  for (int i = 0; i < 4; ++i) {
    for (int v = 0; v < 6; ++v) {
      const double pixel = (20 * images[i] + v) / 255.0;
      // A channel without deviation keeps its scale.
      const double expected = v < 3 ? (pixel - 0.25) / 0.5 : pixel - 0.5;
      EXPECT_THAT(batch.images[6 * i + v], FloatNear(static_cast<float>(expected), 1e-6f)) << i << " " << v;
    }
  }
}

TEST_F(PreparedTest, ImagesMaxKeepsTheFirst) {
  EXPECT_EQ(Open({.images_max = 2, .verify = false})->LabelCounts(3), (std::vector<uint64_t>{1, 1, 0}));
  EXPECT_EQ(Open({.images_max = 4, .verify = false})->size(), 4u);
  EXPECT_EQ(Open({.images_max = 40, .verify = false})->size(), 5u);
}

TEST_F(PreparedTest, ShardsBeyondImagesMaxAreNotTouched) {
  std::filesystem::remove(folder_ / "train-00001.images.npy");
  std::filesystem::remove(folder_ / "train-00001.labels.npy");
  for (const bool verify : {false, true}) {
    const absl::StatusOr<Dataset> data = Open({.images_max = 3, .verify = verify});
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(data->size(), 3u);
  }
  for (const uint64_t images_max : {0u, 4u}) {
    EXPECT_EQ(Open({.images_max = images_max, .verify = false}).status().code(), absl::StatusCode::kNotFound);
  }
  EXPECT_EQ(index_.splits[0].ShardsOf(0).size(), 2u);
  EXPECT_EQ(index_.splits[0].ShardsOf(3).size(), 1u);
  EXPECT_EQ(index_.splits[0].ShardsOf(4).size(), 2u);
}

TEST_F(PreparedTest, OnDemandOnlyTheFilesOfATaskAreOpened) {
  std::vector<std::string> located;
  const Locate locate = [&](const PreparedFile& file, const FetchWatch& watch) -> absl::StatusOr<HeldFile> {
    located.push_back(file.name);
    if (watch != nullptr && !watch().ok()) return watch();
    return HeldFile{.path = folder_ / file.name};
  };
  const auto data = Dataset::OpenPrepared("set", locate, index_, "train", {.on_demand = true});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(located, ElementsAre("train-00000.labels.npy", "train-00001.labels.npy"));
  EXPECT_THAT(data->LabelCounts(3), ElementsAre(2, 2, 1));
  EXPECT_THAT(data->file_starts(), ElementsAre(0, 3));
  Batch batch;
  EXPECT_EQ(data->Load({4}, 0, 1, batch).message(), "found an image of train-00001.images.npy, which is not here");
  located.clear();
  ASSERT_TRUE(data->Fetch({4, 3, 4}, nullptr).ok());
  EXPECT_THAT(located, ElementsAre("train-00001.images.npy"));
  ASSERT_TRUE(data->Load({4, 3}, 0, 1, batch).ok());
  EXPECT_THAT(batch.labels, ElementsAre(2, 1));
  EXPECT_EQ(data->Load({0}, 0, 1, batch).code(), absl::StatusCode::kFailedPrecondition);
  located.clear();
  ASSERT_TRUE(data->Fetch({3}, nullptr).ok());
  EXPECT_TRUE(located.empty()) << "it is here";
  // Another task lets go of it, and who waits can end the wait.
  EXPECT_EQ(data->Fetch({0}, [] { return absl::CancelledError("told to stop"); }).message(), "told to stop");
  EXPECT_EQ(data->Load({4}, 0, 1, batch).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(data->Fetch({0, 4}, nullptr).ok());
  ASSERT_TRUE(data->Load({0, 1, 2, 3, 4}, 0, 1, batch).ok());
  EXPECT_THAT(batch.labels, ElementsAre(0, 1, 0, 1, 2));
}

TEST_F(PreparedTest, ASplitWithoutImagesIsRefused) {
  for (const std::string split : {"test", "validation"}) {
    EXPECT_THAT(std::string(Open({}, split).status().message()), HasSubstr("no images in its split " + split));
  }
}

TEST_F(PreparedTest, MissingAndCutFilesAreNamed) {
  const std::string path = folder_ / "train-00001.images.npy";
  const Bytes whole = ReadFile(path);
  WriteFile(path, Bytes(whole.begin(), whole.end() - 1));
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                "train-00001.images.npy has 139 bytes; its index.json says 140: it was cut short");
  WriteFile(path, {});
  ExpectRefused(absl::StatusCode::kInvalidArgument, "has 0 bytes");
  std::filesystem::remove(path);
  ExpectRefused(absl::StatusCode::kNotFound, "train-00001.images.npy");
}

TEST_F(PreparedTest, AnotherShapeOrTypeIsRefused) {
  index_.shape = {.channels = 2, .height = 3, .width = 1};
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                "shape (3, 2, 1, 3); its index.json needs type |u1 and shape (3, 2, 3, 1)");
  index_.shape = {.channels = 2, .height = 1, .width = 3};
  index_.splits[0].shards[0].labels =
      Write("train-00000.labels.npy", NpyHeaderText("<u8", {3}) + std::string(24, '\0'));
  ExpectRefused(absl::StatusCode::kInvalidArgument, "train-00000.labels.npy has type <u8");
  index_.splits[0].shards[0].labels = Write("train-00000.labels.npy", std::string(152, 'x'));
  ExpectRefused(absl::StatusCode::kInvalidArgument, "does not begin with");
}

TEST_F(PreparedTest, LabelsBeyondTheClassesAreRefused) {
  for (const int64_t label : {3l, -1l, int64_t{1} << 32}) {
    index_.splits[0].shards[1] = WriteShard("train-00001", 3, {1, label});
    ExpectRefused(absl::StatusCode::kInvalidArgument,
                  "train-00001.labels.npy: the label of row 1 is " + std::to_string(label));
  }
}

TEST_F(PreparedTest, AChangedByteIsFoundWhereAllAreRead) {
  const std::string path = folder_ / "train-00000.images.npy";
  Bytes bytes = ReadFile(path);
  bytes.back() ^= 1;
  WriteFile(path, bytes);
  EXPECT_TRUE(Open().ok());
  const absl::Status status = Open({.images_max = 0, .verify = true}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("train-00000.images.npy is damaged"));
}

TEST_F(PreparedTest, TheIndexReadsAsItWasWritten) {
  index_.skipped = 7;
  index_.settings = R"({"seed": 3})";
  WriteFile(folder_ / "index.json", BytesOf(ToJson(index_)));
  const absl::StatusOr<PreparedIndex> read = ReadPreparedIndex(folder_.path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(*read), ToJson(index_));
  EXPECT_EQ(read->Find("train")->rows(), 5u);
  EXPECT_EQ(read->Find("rest"), nullptr);
}

TEST_F(PreparedTest, ABrokenIndexIsRefusedWithWhatIsWrong) {
  const std::string whole = ToJson(index_);
  const auto message = [](const std::string& text) { return std::string(ParsePreparedIndex(text).status().message()); };
  for (size_t size = 0; size + 2 < whole.size(); ++size)
    ASSERT_THAT(message(whole.substr(0, size)), HasSubstr("cut short"));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return message(text.replace(at, from.size(), to));
  };
  EXPECT_THAT(with("slackline-prepared", "else"), HasSubstr("'format'"));
  EXPECT_THAT(with("\"version\": 1", "\"version\": 2"), HasSubstr("'version' is 2"));
  EXPECT_THAT(with("\"channels\": 2", "\"channels\": 4"), HasSubstr("'channels' is 4"));
  EXPECT_THAT(with("\"height\": 1", "\"height\": -1"), HasSubstr("'height' is -1"));
  EXPECT_THAT(with("0.25", "1.25"), HasSubstr("'mean'"));
  EXPECT_THAT(with("\"rows\": 3", "\"rows\": 4"), HasSubstr("6 images in its shards, but 5 by class"));
  EXPECT_THAT(with("train-00000.images.npy", "../images.npy"), HasSubstr("'../images.npy'"));
  EXPECT_THAT(with("train-00001.images.npy", "train-00000.images.npy"), HasSubstr("named twice"));
  EXPECT_THAT(with("\"xxh3\": \"", "\"xxh3\": \"x"), HasSubstr("'xxh3'"));
  EXPECT_THAT(with("\"ash\"", "7"), HasSubstr("'classes'"));
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_THAT(with("\"settings\": {}", "\"settings\": " + deep), HasSubstr("nested deeper than 32"));
}

// The bytes that numpy.save(file, numpy.zeros((12, 3), "u1")) of NumPy 1.26 begins with.
TEST(Npy, HeaderIsNumpys) {
  std::string expected("\x93NUMPY\x01\x00v\x00{'descr': '|u1', 'fortran_order': False, 'shape': (12, 3), }", 70);
  expected.resize(127, ' ');
  EXPECT_EQ(NpyHeaderText(kNpyUint8, {12, 3}), expected + "\n");
  const auto header = ParseNpyHeader(expected + "\n");
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->type, "|u1");
  EXPECT_THAT(header->shape, ElementsAre(12, 3));
  EXPECT_EQ(header->data_offset, 128u);
}

TEST(Npy, OtherHeadersAreRefused) {
  const std::string good = NpyHeaderText(kNpyInt64, {4});
  EXPECT_THAT(ParseNpyHeader(good)->shape, ElementsAre(4));
  for (size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(ParseNpyHeader(good.substr(0, size)).ok());
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"NUMPY", "NUMPX"}, {"False", "True "}, {"'descr'", "'other'"}, {"(4,)", "(x,)"}, {"(4,)", " 4, "}}) {
    std::string bad = good;
    bad.replace(bad.find(from), from.size(), to);
    EXPECT_FALSE(ParseNpyHeader(bad).ok()) << to;
  }
  std::string second = good;
  second[6] = 2;
  EXPECT_THAT(std::string(ParseNpyHeader(second).status().message()), HasSubstr("version 2.0"));
}

}  // namespace
}  // namespace slackline::images::prepared_test
