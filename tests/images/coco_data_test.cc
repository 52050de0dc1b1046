#include "images/coco/coco_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "absl/strings/str_cat.h"
#include "tests/images/test_data.h"

namespace slackline::images::coco::coco_data_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void AddNumber(uint32_t number, Bytes& out) {
  for (int shift : {24, 16, 8, 0}) out.push_back(static_cast<uint8_t>(number >> shift));
}

void AddPart(const std::string& kind, const Bytes& content, Bytes& out) {
  AddNumber(static_cast<uint32_t>(content.size()), out);
  Bytes part(kind.begin(), kind.end());
  part.insert(part.end(), content.begin(), content.end());
  out.insert(out.end(), part.begin(), part.end());
  AddNumber(static_cast<uint32_t>(crc32(0, part.data(), static_cast<uInt>(part.size()))), out);
}

// A PNG of one grey.
void WritePicture(const std::string& path, uint32_t width, uint32_t height, uint8_t grey) {
  Bytes file = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}, header, rows;
  AddNumber(width, header);
  AddNumber(height, header);
  header.insert(header.end(), {8, 0, 0, 0, 0});
  for (uint32_t y = 0; y < height; ++y) {
    rows.push_back(0);
    rows.insert(rows.end(), width, grey);
  }
  Bytes packed(compressBound(rows.size()));
  uLongf size = packed.size();
  SLACKLINE_CHECK(compress(packed.data(), &size, rows.data(), rows.size()) == Z_OK);
  packed.resize(size);
  AddPart("IHDR", header, file);
  AddPart("IDAT", packed, file);
  AddPart("IEND", {}, file);
  WriteFile(path, file);
}

void WriteText(const std::string& path, const std::string& text) { WriteFile(path, Bytes(text.begin(), text.end())); }

std::string Image(int id) {
  return absl::StrCat(R"({"id": )", id, R"(, "file_name": ")", id, R"(.png", "height": 2, "width": )", id + 2, "}");
}

std::string Object(int image) {
  return absl::StrCat(R"({"image_id": )", image,
                      R"(, "category_id": 1, "bbox": [1, 0, 1, 2], "segmentation": [[1, 0, 2, 0, 2, 2, 1, 2]]})");
}

// Images 0, 1 and 2, of 2 x 2, 3 x 2 and 4 x 2 pixels; image 1 has no object.
class CocoDataTest : public ::testing::Test {
 protected:
  CocoDataTest() {
    for (uint32_t i = 0; i < 3; ++i) {
      WritePicture(folder_ / (std::to_string(i) + ".png"), i + 2, 2, static_cast<uint8_t>(51 * i));
    }
    WriteText(folder_ / "train.json", Json("square"));
    WriteText(folder_ / "val.json", Json("square"));
  }

  static std::string Json(const std::string& name) {
    return absl::StrCat(R"({"images": [)", Image(2), ",", Image(0), ",", Image(1), R"(], "annotations": [)", Object(0),
                        ",", Object(2), R"(], "categories": [{"id": 1, "name": ")", name, R"("}]})");
  }

  CocoOptions Options() const {
    const SplitFiles train = {folder_.path(), folder_ / "train.json"}, test = {folder_.path(), folder_ / "val.json"};
    return {.train = train, .evaluation = test, .masks = true, .classes = 3, .train_images_max = 0};
  }

  TemporaryFolder folder_;
};

TEST_F(CocoDataTest, ImagesComeWithTheirObjects) {
  const auto data = OpenCoco(Options());
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->class_names, ElementsAre("0", "square", "2"));
  EXPECT_EQ(data->test.size(), 3u);
  Batch batch;
  ASSERT_TRUE(data->train.Load({2, 1}, 0.3, 0.4, batch).ok());
  ASSERT_EQ(batch.scenes.size(), 2u);
  const Scene &with = batch.scenes[0], &without = batch.scenes[1];
  EXPECT_EQ(with.channels, 3u);
  EXPECT_EQ(with.width, 4u);
  EXPECT_THAT(with.pixels, Each(0.4f));
  EXPECT_THAT(with.boxes, ElementsAre(1, 0, 2, 2));
  EXPECT_THAT(with.labels, ElementsAre(1));
  EXPECT_THAT(with.masks, ElementsAre(0, 1, 0, 0, 0, 1, 0, 0));
  EXPECT_EQ(without.objects(), 0u);
  EXPECT_TRUE(without.has_masks);
  EXPECT_TRUE(CheckScene(with, 3).ok() && CheckScene(without, 3).ok());
  // What a batch had before is gone.
  ASSERT_TRUE(data->train.Load({1, 0}, 0, 1, batch).ok());
  EXPECT_EQ(batch.scenes[0].objects(), 0u);
  EXPECT_EQ(batch.scenes[1].masks.size(), 4u);
}

TEST_F(CocoDataTest, FingerprintIsOfWhatTheTrainingAnnotationsSay) {
  const uint64_t before = OpenCoco(Options())->fingerprint;
  EXPECT_NE(before, 0u);
  WriteText(folder_ / "val.json", Json("square") + "\n");
  EXPECT_EQ(OpenCoco(Options())->fingerprint, before);
  std::string moved = Json("square");
  moved.replace(moved.find("[1, 0, 1, 2]"), 12, "[0, 0, 2, 2]");
  WriteText(folder_ / "train.json", moved);
  EXPECT_NE(OpenCoco(Options())->fingerprint, before);
}

TEST_F(CocoDataTest, FewerImagesAreTheFirstByTheirIds) {
  CocoOptions options = Options();
  options.train_images_max = 2;
  options.masks = false;
  const auto data = OpenCoco(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train.size(), 2u);
  Batch batch;
  ASSERT_TRUE(data->train.Load({0, 1}, 0, 1, batch).ok());
  EXPECT_EQ(batch.scenes[1].width, 3u);
  EXPECT_FALSE(batch.scenes[0].has_masks);
  EXPECT_TRUE(batch.scenes[0].masks.empty());
}

TEST_F(CocoDataTest, TheNextTakesThePlaceOfAPictureThatCannotBeRead) {
  WritePicture(folder_ / "2.png", 5, 2, 0);  // of another size than its annotations say
  std::filesystem::remove(folder_ / "0.png");
  const auto data = OpenCoco(Options());
  ASSERT_TRUE(data.ok()) << data.status();
  Batch batch;
  ASSERT_TRUE(data->train.Load({2, 0}, 0, 1, batch).ok());
  EXPECT_EQ(batch.scenes[0].width, 3u);
  EXPECT_EQ(batch.scenes[1].width, 3u);
  WriteText(folder_ / "1.png", "no picture");
  const absl::Status none = data->train.Load({2}, 0, 1, batch);
  EXPECT_EQ(none.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(none.message()), HasSubstr("2.png: it has 5x2 pixels, and its annotations are of 4x2"));
}

TEST_F(CocoDataTest, SplitsThatNameACategoryOtherwiseAreRefused) {
  WriteText(folder_ / "val.json", Json("disc"));
  EXPECT_THAT(std::string(OpenCoco(Options()).status().message()), HasSubstr("category 1 is square in "));
  WriteText(folder_ / "val.json", "{}");
  EXPECT_THAT(std::string(OpenCoco(Options()).status().message()), HasSubstr("val.json: it has no list \"images\""));
}

}  // namespace
}  // namespace slackline::images::coco::coco_data_test
