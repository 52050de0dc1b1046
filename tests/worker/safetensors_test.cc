// The bytes of the safetensors format. twin.py tests that Python reads them.
#include "worker/model/weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/images/test_data.h"

namespace slackline::worker::safetensors_test {
namespace {

using ::testing::HasSubstr;

std::vector<TensorInfo> SmallTensors() {
  return {{.name = "fc1.weight", .shape = {1, 3}, .offset = 0},
          {.name = "bn1.running_mean", .shape = {2}, .trained = false, .offset = 3}};
}

TEST(Safetensors, FileIsAHeaderAndTheNumbers) {
  TemporaryFolder folder;
  const std::vector<float> flat = {1, 2, 3, 4, 5};
  ASSERT_TRUE(WriteSafetensors(folder / "model.safetensors", SmallTensors(), flat, {{"note", "test"}}).ok());

  const Bytes file = ReadFile(folder / "model.safetensors");
  uint64_t header_bytes = 0;
  ASSERT_GT(file.size(), sizeof(header_bytes));
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  EXPECT_EQ(header_bytes % 8, 0u);
  const size_t data = sizeof(header_bytes) + header_bytes;
  ASSERT_EQ(file.size(), data + sizeof(int64_t) + flat.size() * sizeof(float));
  EXPECT_EQ(nlohmann::json::parse(file.begin() + sizeof(header_bytes), file.begin() + data), nlohmann::json::parse(R"({
      "__metadata__": {"format": "pt", "note": "test"},
      "bn1.num_batches_tracked": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]},
      "fc1.weight": {"dtype": "F32", "shape": [1, 3], "data_offsets": [8, 20]},
      "bn1.running_mean": {"dtype": "F32", "shape": [2], "data_offsets": [20, 28]}})"));
  EXPECT_EQ(std::memcmp(file.data() + data + sizeof(int64_t), flat.data(), flat.size() * sizeof(float)), 0);
}

TEST(Safetensors, FailureLeavesTheOldFileAndNothingElse) {
  TemporaryFolder folder;
  WriteFile(folder / "model.safetensors", {7});
  const absl::Status status = WriteSafetensors(folder / "model.safetensors", SmallTensors(), std::vector<float>(4));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("5 elements describe 4 values"));
  EXPECT_EQ(ReadFile(folder / "model.safetensors"), Bytes{7});

  const absl::Status missing = WriteSafetensors(folder / "missing/model", SmallTensors(), std::vector<float>(5));
  EXPECT_EQ(missing.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("missing/model.tmp: No such file"));
  // A folder of that name cannot be replaced by a file.
  std::filesystem::create_directory(folder / "taken");
  EXPECT_FALSE(WriteSafetensors(folder / "taken", SmallTensors(), std::vector<float>(5)).ok());
  EXPECT_FALSE(std::filesystem::exists(folder / "taken.tmp"));
}

TEST(Safetensors, TensorsWithAGapAreRefused) {
  TemporaryFolder folder;
  std::vector<TensorInfo> tensors = SmallTensors();
  tensors[1].offset = 4;
  const absl::Status status = WriteSafetensors(folder / "model", tensors, std::vector<float>(6));
  EXPECT_THAT(std::string(status.message()), HasSubstr("begins at element 4, the one before ends at 3"));
}

}  // namespace
}  // namespace slackline::worker::safetensors_test
