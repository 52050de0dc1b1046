// The table of formats: every format of the job file has an entry, and checks name the setting.
#include "images/formats/data_format.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/images/test_data.h"

namespace slackline::images::data_format_test {
namespace {

using ::testing::HasSubstr;

job::Data DataIn(const std::string& folder, job::Data::Format format) {
  job::Data data;
  data.set_format(format);
  data.set_path(folder);
  return data;
}

TEST(DataFormat, EveryFormatOfTheJobFileHasAnEntry) {
  const google::protobuf::EnumDescriptor& formats = *job::Data::Format_descriptor();
  for (int i = 0; i < formats.value_count(); ++i) {
    const auto format = static_cast<job::Data::Format>(formats.value(i)->number());
    const DataFormat& entry = FormatOf(DataIn("", format));
    EXPECT_EQ(entry.format, format);
    EXPECT_NE(entry.open, nullptr);
  }
}

TEST(DataFormat, AFolderWithoutTheFilesOfAFormatIsRefusedByItsSetting) {
  const TemporaryFolder folder;
  const auto refusal = [&](job::Data::Format format) {
    const job::Data data = DataIn(folder.path(), format);
    return std::string(FormatOf(data).check(data, 10).message());
  };
  EXPECT_THAT(refusal(job::Data::IDX), HasSubstr("data.path: found no train-images-idx3-ubyte"));
  EXPECT_THAT(refusal(job::Data::PREPARED), HasSubstr("data.path: "));
  EXPECT_THAT(refusal(job::Data::COCO), HasSubstr("data.coco.train_annotations: found no file"));
}

TEST(DataFormat, IdxIsOpenedByItsEntry) {
  const TemporaryFolder folder;
  for (const std::string stem : {"train", "t10k"}) {
    WriteFile(folder / (stem + "-images-idx3-ubyte"), Idx({2, 4, 4}, Bytes(32, 7)));
    WriteFile(folder / (stem + "-labels-idx1-ubyte"), Idx({2}, {0, 1}));
  }
  const DataRequest request = {.settings = DataIn(folder.path(), job::Data::IDX), .classes = 2};
  const absl::StatusOr<JobData> data = OpenJobData(request);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train.size(), 2u);
  EXPECT_NE(data->fingerprint, 0u);
  const DataRequest other = {.settings = request.settings, .classes = 1};
  EXPECT_EQ(OpenJobData(other).status().message(), "the data has label 1; model.classes is 1");
}

TEST(DataFormat, TheLastEvaluationMayHaveImagesOfItsOwn) {
  const TemporaryFolder folder;
  for (const std::string name : {"train/cats/1", "val/cats/1", "test/cats/1", "test/cats/2"}) {
    std::filesystem::create_directories(std::filesystem::path(folder / name).parent_path());
    WriteFile(folder / (name + ".png"), Bytes(8, 7));
  }
  DataRequest request = {.settings = DataIn(folder.path(), job::Data::FOLDER), .classes = 1};
  request.settings.mutable_decode()->set_size("8x8");
  request.evaluation_split = "validation";
  EXPECT_FALSE(OpenJobData(request)->last_test);
  request.last_split = "test";
  const absl::StatusOr<JobData> data = OpenJobData(request);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->test.size(), 1u);
  ASSERT_TRUE(data->last_test);
  EXPECT_EQ(data->last_test->size(), 2u);
}

TEST(DataFormat, FoldersOfPicturesRefuseASplitThatThereIsNot) {
  const TemporaryFolder folder;
  for (const std::string split : {"train", "test"}) {
    std::filesystem::create_directories(std::filesystem::path(folder / split) / "cats");
    WriteFile(folder / (split + "/cats/1.png"), Bytes(8, 7));
  }
  DataRequest request = {.settings = DataIn(folder.path(), job::Data::FOLDER), .classes = 1};
  request.settings.mutable_decode()->set_size("8x8");
  for (const std::string split : {"tets", "train"}) {
    request.evaluation_split = split;
    EXPECT_EQ(OpenJobData(request).status().message(),
              "found the split '" + split + "'; allowed is validation or test");
  }
}

}  // namespace
}  // namespace slackline::images::data_format_test
