#include "images/coco/annotations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"

namespace slackline::images::coco::coco_annotations_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kImages[] =
    R"("images": [{"id": 9, "file_name": "b/9.png", "height": 4, "width": 6, "license": [1, {"a": 2}]},
                  {"id": 3, "file_name": "3.png", "height": 2, "width": 2}])";
constexpr char kNames[] = R"("categories": [{"id": 2, "name": "disc"}, {"id": 1, "name": "square"}])";
constexpr Annotations::Options kWithMasks = {.classes = 3, .masks = true, .crowds = false};

std::string File(const std::string& annotations) {
  return absl::StrCat(R"({"info": {"images": [5], "annotations": {}}, "annotations": [)", annotations, "], ", kImages,
                      ", ", kNames, "}");
}

// An annotation of image 9, but for its last fields.
std::string Annotation(const std::string& rest) {
  return absl::StrCat(R"({"image_id": 9, "category_id": 2, )", rest, "}");
}

const char kGood[] = R"("bbox": [1, 1, 3, 2], "segmentation": [[1, 1, 4, 1, 4, 3, 1, 3]])";

std::string RefusalOf(const std::string& text, Annotations::Options options = kWithMasks) {
  return std::string(Annotations::Parse(text, options).status().message());
}

// What is said of a broken one beside a good one.
std::string SkippedOf(const std::string& annotation, Annotations::Options options = kWithMasks) {
  const auto read = Annotations::Parse(File(absl::StrCat(Annotation(kGood), ", ", annotation)), options);
  if (!read.ok()) return absl::StrCat("refused: ", read.status().message());
  return read->skipped() == 1 ? read->first_skipped() : absl::StrCat(read->skipped(), " are skipped");
}

std::vector<uint8_t> Painted(const Annotations& annotations, const ImageEntry& image, size_t object) {
  std::vector<uint8_t> pixels(size_t{image.height} * image.width);
  annotations.PaintMask(image.objects[object],
                        {.height = image.height, .width = image.width, .pixels = absl::MakeSpan(pixels)});
  return pixels;
}

TEST(CocoAnnotations, ImagesHaveTheirObjectsInTheOrderOfIds) {
  const auto read = Annotations::Parse(
      File(absl::StrCat(Annotation(kGood), R"(, {"image_id": 3, "category_id": 1, "bbox": [0.5, -1, 9, 2],
        "segmentation": {"size": [2, 2], "counts": [1, 2, 1]}})")),
      kWithMasks);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->skipped(), 0u);
  EXPECT_THAT(read->categories(), ElementsAre(::testing::Pair(1, "square"), ::testing::Pair(2, "disc")));
  ASSERT_EQ(read->images().size(), 2u);
  const ImageEntry &first = read->images()[0], &second = read->images()[1];
  EXPECT_EQ(first.file, "3.png");
  EXPECT_EQ(second.file, "b/9.png");
  EXPECT_EQ(second.height, 4u);
  ASSERT_TRUE(first.objects.size() == 1 && second.objects.size() == 1);
  // Cut off at the image's sides.
  EXPECT_THAT(first.objects[0].box, ElementsAre(0.5f, 0, 2, 1));
  EXPECT_THAT(second.objects[0].box, ElementsAre(1, 1, 4, 3));
  EXPECT_EQ(first.objects[0].category, 1u);
  // Runs go down the columns.
  EXPECT_THAT(Painted(*read, first, 0), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(Painted(*read, second, 0),
              ElementsAre(0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0));
}

TEST(CocoAnnotations, SeveralPolygonsAreOneMask) {
  const auto read = Annotations::Parse(
      File(Annotation(R"("bbox": [0, 0, 6, 4], "segmentation": [[0, 0, 1, 0, 1, 1, 0, 1], [4, 3, 6, 3, 6, 4, 4, 4]])")),
      kWithMasks);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(Painted(*read, read->images()[1], 0),
              ElementsAre(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1));
}

TEST(CocoAnnotations, CrowdsAreKeptWhereTheyAreWanted) {
  const std::string text = File(absl::StrCat(
      Annotation(kGood), ", ",
      Annotation(R"("iscrowd": 1, "bbox": [0, 0, 6, 4], "segmentation": {"size": [4, 6], "counts": [0, 24]})")));
  const auto without = Annotations::Parse(text, kWithMasks);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->images()[1].objects.size(), 1u);
  EXPECT_EQ(without->skipped(), 0u);
  const auto with = Annotations::Parse(text, {.classes = 3, .masks = true, .crowds = true});
  ASSERT_TRUE(with.ok()) << with.status();
  ASSERT_EQ(with->images()[1].objects.size(), 2u);
  EXPECT_TRUE(with->images()[1].objects[1].crowd);
}

TEST(CocoAnnotations, BrokenOnesArePassedOverAndTheFirstIsNamed) {
  EXPECT_EQ(SkippedOf(R"({"category_id": 1})"), "annotation 1: it has no \"image_id\" that is a whole number");
  EXPECT_EQ(SkippedOf(R"({"image_id": 9, "category_id": -1})"), "annotation 1: it has no \"category_id\" from 0 on");
  EXPECT_EQ(
      SkippedOf(R"({"image_id": 9, "category_id": 0, "bbox": [0, 0, 1, 1], "segmentation": [[0, 0, 1, 0, 1, 1]]})"),
      "annotation 1: there is no category with id 0");
  EXPECT_EQ(
      SkippedOf(R"({"image_id": 4, "category_id": 1, "bbox": [0, 0, 1, 1], "segmentation": [[0, 0, 1, 0, 1, 1]]})"),
      "annotation 1: there is no image with id 4");
  EXPECT_EQ(SkippedOf(Annotation(R"("bbox": [1, 2, "x", 3])")), "annotation 1: it has no \"bbox\" of four numbers");
  EXPECT_EQ(SkippedOf(Annotation(R"("bbox": [1, 2, 1e300, 3])")),
            "annotation 1: its \"bbox\" is far outside of any image");
  EXPECT_EQ(SkippedOf(Annotation(R"("bbox": [1, 2, 0, 1], "segmentation": [[0, 0, 1, 0, 1, 1]])")),
            "annotation 1: its \"bbox\" has nothing of image 9");
  EXPECT_EQ(SkippedOf(Annotation(R"("bbox": [1, 1, 1, 1])")),
            "annotation 1: it has no \"segmentation\"; data.coco.masks: false trains on boxes alone");
  EXPECT_THAT(SkippedOf(Annotation(R"("bbox": [1, 1, 1, 1], "segmentation": [[0, 0, 1, 0]])")),
              HasSubstr("has no three points"));
  EXPECT_THAT(SkippedOf(Annotation(R"("bbox": [1, 1, 1, 1], "segmentation": [[0, 0, 1, 0, 1e9, 1]])")),
              HasSubstr("numbers that are none"));
  std::string long_outline = "0, 0, 900000, 900000";
  for (int i = 0; i < 12; ++i) absl::StrAppend(&long_outline, ", -900000, 0, 900000, 0");
  EXPECT_THAT(SkippedOf(Annotation(absl::StrCat(R"("bbox": [1, 1, 1, 1], "segmentation": [[)", long_outline, "]]"))),
              HasSubstr("its outline is"));
  const auto runs = [](const std::string& segmentation) {
    return SkippedOf(Annotation(absl::StrCat(R"("bbox": [1, 1, 1, 1], "segmentation": )", segmentation)));
  };
  EXPECT_THAT(runs(R"({"size": [4], "counts": [24]})"), HasSubstr("no height and width"));
  EXPECT_THAT(runs(R"({"size": [4, 6], "counts": [23]})"), HasSubstr("are 23 pixels; its \"size\" has 24"));
  EXPECT_THAT(runs(R"({"size": [4, 6], "counts": [-1, 25]})"), HasSubstr("are no lengths"));
  EXPECT_THAT(runs(R"({"size": [6, 4], "counts": [24]})"), HasSubstr("its runs are of 4x6 pixels, image 9 of 6x4"));
  EXPECT_THAT(runs(R"({"size": [4, 6], "counts": "P"})"), HasSubstr("no text of pycocotools, at character 1"));
  // Where masks are not wanted nobody looks at them.
  EXPECT_EQ(SkippedOf(Annotation(R"("bbox": [1, 1, 1, 1])"), {.classes = 3}), "0 are skipped");
}

TEST(CocoAnnotations, AnImageWithTooManyObjectsIsPassedOver) {
  std::string many = R"({"image_id": 3, "category_id": 1, "bbox": [0, 0, 1, 1]})";
  for (uint64_t i = 0; i <= kObjectsMax; ++i) absl::StrAppend(&many, ", ", Annotation(R"("bbox": [1, 1, 1, 1])"));
  const auto read = Annotations::Parse(File(many), {.classes = 3});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->images().size(), 1u);
  EXPECT_EQ(read->first_skipped(), "image 9: it has 1001 objects; allowed are 1000");
}

TEST(CocoAnnotations, FilesThatAreNoneOfCocosAreRefused) {
  EXPECT_THAT(RefusalOf("{\"images\": ["), HasSubstr("it is no JSON: "));
  EXPECT_THAT(RefusalOf(""), HasSubstr("it is no JSON: "));
  EXPECT_EQ(RefusalOf("[{\"images\": []}]"), "it is no object of JSON; allowed is COCO's format");
  EXPECT_EQ(RefusalOf("{\"images\": {}}"), "it has no list \"images\"; allowed is COCO's format");
  EXPECT_EQ(RefusalOf("{\"images\": [], \"annotations\": []}"),
            "it has no list \"categories\"; allowed is COCO's format");
  EXPECT_EQ(RefusalOf("{\"images\": [3]}"), "\"images\" has something else than objects");
  EXPECT_EQ(RefusalOf("{\"annotations\": [[{}]]}"), "\"annotations\" has something else than objects");
  EXPECT_THAT(RefusalOf(R"({"images": [{"id": 1, "height": 2, "width": 0, "file_name": "a"}]})"),
              HasSubstr("image 0 has no \"height\" and \"width\" from 1 to 65535"));
  for (const char* file : {"/a", "../a", "a/../../b", ""}) {
    EXPECT_THAT(
        RefusalOf(absl::StrCat(R"({"images": [{"id": 1, "height": 2, "width": 2, "file_name": ")", file, "\"}]}")),
        HasSubstr("no \"file_name\" below its folder"));
  }
  const std::string image = R"({"id": 1, "height": 2, "width": 2, "file_name": "a"})";
  EXPECT_EQ(RefusalOf(absl::StrCat("{\"images\": [", image, ", ", image, "]}")),
            "image 1 has id 1, as one before it has");
  EXPECT_EQ(RefusalOf(File(Annotation(kGood)), {.classes = 2}),
            "category disc has id 2; model.classes is 2, and ids are labels, which are below");
  EXPECT_THAT(RefusalOf(File(Annotation(R"("bbox": [1, 1, 1, 1])"))),
              HasSubstr("it has no object on any image; passed over is annotation 0: it has no \"segmentation\""));
  EXPECT_EQ(Annotations::Read("/does/not/exist.json", kWithMasks).status().code(), absl::StatusCode::kNotFound);
}

TEST(CocoMask, MasksEqualThoseOfPycocotools) {
  const auto golden = nlohmann::json::parse(std::ifstream(SLACKLINE_TEST_FOLDER "/coco_golden.json")).at("masks");
  ASSERT_EQ(golden.size(), 24u);
  for (const auto& entry : golden) {
    const uint32_t height = entry.at("height"), width = entry.at("width");
    std::vector<uint8_t> polygon(size_t{height} * width), runs(polygon.size()), expected;
    for (const char pixel : entry.at("pixels").get<std::string>()) expected.push_back(pixel == '1');
    std::vector<int32_t> fifths;
    for (const double number : entry.at("polygon").get<std::vector<double>>()) fifths.push_back(FifthsOf(number));
    PaintPolygon(fifths, {.height = height, .width = width, .pixels = absl::MakeSpan(polygon)});
    EXPECT_EQ(polygon, expected) << entry.at("polygon");
    const auto parsed = ParseRuns(entry.at("text").get<std::string>());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    PaintRuns(*parsed, {.height = height, .width = width, .pixels = absl::MakeSpan(runs)});
    EXPECT_EQ(runs, expected) << entry.at("text");
  }
}

TEST(CocoMask, RunsThatAreNoneAreRefused) {
  for (const char* text : {" ", "o", "oooooooooo", "\x7f", "@"}) EXPECT_FALSE(ParseRuns(text).ok()) << text;
  EXPECT_THAT(*ParseRuns("51"), ElementsAre(5, 1));
  EXPECT_THAT(*ParseRuns(""), ElementsAre());
}

}  // namespace
}  // namespace slackline::images::coco::coco_annotations_test
