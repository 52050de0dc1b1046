// Initial weights: which are taken, which stay, and what is refused without a change.
#include "worker/model/weights/load_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/images/test_data.h"
#include "worker/model/weights/safetensors.h"

namespace slackline::worker::load_weights_test {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// conv.weight [2], bn.running_mean [1] behind the trained ones, fc.weight [2, 2], fc.bias [2].
std::vector<TensorInfo> NetTensors() {
  return {{.name = "conv.weight", .shape = {2}, .offset = 0},
          {.name = "fc.weight", .shape = {2, 2}, .offset = 2},
          {.name = "fc.bias", .shape = {2}, .offset = 6},
          {.name = "bn.running_mean", .shape = {1}, .trained = false, .offset = 8}};
}

template <typename Value>
std::string BytesOfValues(const std::vector<Value>& values) {
  std::string bytes(values.size() * sizeof(Value), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// A file by hand, entry by entry.
class Maker {
 public:
  Maker& Add(const std::string& name, const std::string& type, const std::vector<uint64_t>& shape,
             const std::string& bytes) {
    header_[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {data_.size(), data_.size() + bytes.size()}}};
    data_ += bytes;
    return *this;
  }
  nlohmann::json& header() { return header_; }
  std::string file() const {
    const std::string text = header_.dump();
    return BytesOfValues<uint64_t>({text.size()}) + text + data_;
  }

 private:
  nlohmann::json header_ = nlohmann::json::object();
  std::string data_;
};

// Half-precision 1.5, -2 and 0.25 in both short types.
Maker WholeFile() {
  Maker maker;
  maker.Add("bn.num_batches_tracked", "I64", {}, BytesOfValues<int64_t>({7}));
  maker.Add("fc.bias", "BF16", {2}, BytesOfValues<uint16_t>({0x3fc0, 0xc000}));
  maker.Add("conv.weight", "F16", {2}, BytesOfValues<uint16_t>({0x3e00, 0x3400}));
  maker.Add("fc.weight", "F32", {2, 2}, BytesOfValues<float>({1, 2, 3, 4}));
  maker.Add("bn.running_mean", "F32", {1}, BytesOfValues<float>({9}));
  return maker;
}

absl::StatusOr<std::vector<std::string>> Take(const std::string& file, std::vector<float>& flat) {
  return TakeWeights(file, NetTensors(), absl::MakeSpan(flat));
}

// Refused, with these words, and nothing changed.
void ExpectBad(const std::string& file, const std::string& words) {
  const std::vector<float> before(9, -1);
  std::vector<float> flat = before;
  const auto kept = Take(file, flat);
  EXPECT_EQ(kept.status().code(), absl::StatusCode::kInvalidArgument) << kept.status() << " for " << words;
  EXPECT_THAT(std::string(kept.status().message()), HasSubstr(words));
  EXPECT_THAT(flat, ElementsAreArray(before));
}

TEST(LoadWeights, TakesEveryTensorToItsPlaceWhateverItsTypeAndOrder) {
  std::vector<float> flat(9, -1);
  const auto kept = Take(WholeFile().file(), flat);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_THAT(*kept, IsEmpty());
  EXPECT_THAT(flat, ElementsAre(1.5, 0.25, 1, 2, 3, 4, 1.5, -2, 9));
}

TEST(LoadWeights, ReadsWhatWasWritten) {
  TemporaryFolder folder;
  const std::vector<float> flat = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  ASSERT_TRUE(WriteSafetensors(folder / "model.safetensors", NetTensors(), flat).ok());
  std::vector<float> read(9, 0);
  const auto kept = LoadWeights(folder / "model.safetensors", NetTensors(), absl::MakeSpan(read));
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_THAT(read, ElementsAreArray(flat));
}

TEST(LoadWeights, TheClassifierStaysWhereTheClassesDiffer) {
  Maker maker;
  maker.Add("conv.weight", "F32", {2}, BytesOfValues<float>({1, 2}));
  maker.Add("fc.weight", "F32", {3, 2}, BytesOfValues<float>({1, 2, 3, 4, 5, 6}));
  maker.Add("fc.bias", "F32", {3}, BytesOfValues<float>({1, 2, 3}));
  maker.Add("bn.running_mean", "F32", {1}, BytesOfValues<float>({9}));
  std::vector<float> flat(9, -1);
  const auto kept = Take(maker.file(), flat);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_THAT(*kept, ElementsAre("fc.weight", "fc.bias"));
  EXPECT_THAT(flat, ElementsAre(1, 2, -1, -1, -1, -1, -1, -1, 9));
}

TEST(LoadWeights, TheClassifierIsKnownWhereTheRestIsFrozen) {
  // What is frozen lies last.
  const std::vector<TensorInfo> tensors = {
      {.name = "fc.weight", .shape = {2, 2}, .offset = 0},
      {.name = "fc.bias", .shape = {2}, .offset = 4},
      {.name = "conv.weight", .shape = {2}, .trained = false, .frozen = true, .offset = 6}};
  Maker maker;
  maker.Add("conv.weight", "F32", {2}, BytesOfValues<float>({1, 2}));
  maker.Add("fc.weight", "F32", {3, 2}, BytesOfValues<float>({1, 2, 3, 4, 5, 6}));
  maker.Add("fc.bias", "F32", {3}, BytesOfValues<float>({1, 2, 3}));
  std::vector<float> flat(8, -1);
  const auto kept = TakeWeights(maker.file(), tensors, absl::MakeSpan(flat));
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_THAT(*kept, ElementsAre("fc.weight", "fc.bias"));
  EXPECT_THAT(flat, ElementsAre(-1, -1, -1, -1, -1, -1, 1, 2));
}

TEST(LoadWeights, OfARunWithoutLabelsTheHeadIsPassedOverAndTheClassifierStays) {
  const auto file = [](bool head) {
    Maker maker;
    maker.Add("conv.weight", "F32", {2}, BytesOfValues<float>({1, 2}));
    if (head) maker.Add("projection.0.weight", "F32", {1, 2}, BytesOfValues<float>({1, 2}));
    if (head) maker.Add("prediction.3.bias", "F32", {1}, BytesOfValues<float>({3}));
    maker.Add("bn.running_mean", "F32", {1}, BytesOfValues<float>({9}));
    return maker.file();
  };
  std::vector<float> flat(9, -1);
  const auto kept = Take(file(true), flat);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_THAT(*kept, ElementsAre("fc.weight", "fc.bias"));
  EXPECT_THAT(flat, ElementsAre(1, 2, -1, -1, -1, -1, -1, -1, 9));
  ExpectBad(file(false), "found no fc.weight; the model has it, [2, 2]");

  // Another backbone is as wrong as ever.
  Maker other;
  other.Add("projection.0.weight", "F32", {1, 2}, BytesOfValues<float>({1, 2}));
  other.Add("bn.running_mean", "F32", {1}, BytesOfValues<float>({9}));
  ExpectBad(other.file(), "found no conv.weight");
}

TEST(LoadWeights, AClassifierThatContradictsItselfIsRefused) {
  Maker maker = WholeFile();
  maker.header()["fc.bias"]["shape"] = {7};
  ExpectBad(maker.file(), "fc.weight: found shape [2, 2], and [7] of fc.bias; allowed are as many classes in both");
}

TEST(LoadWeights, WhatDoesNotFitIsNamed) {
  Maker without = WholeFile();
  without.header().erase("conv.weight");
  ExpectBad(without.file(), "found no conv.weight; the model has it, [2]");

  Maker shape = WholeFile();
  shape.header()["conv.weight"]["shape"] = {1, 2};
  ExpectBad(shape.file(), "conv.weight: found shape [1, 2]; the model has [2]");
  // The first dimension alone may differ, and that of the classifier alone.
  Maker inputs = WholeFile();
  inputs.header()["fc.weight"]["shape"] = {1, 4};
  ExpectBad(inputs.file(), "fc.weight: found shape [1, 4]; the model has [2, 2]");

  Maker type = WholeFile();
  type.header()["conv.weight"]["dtype"] = "I8";
  ExpectBad(type.file(), "conv.weight: found values of type I8; allowed are F32, F16 and BF16");

  ExpectBad(WholeFile().Add("extra.weight", "F32", {1}, BytesOfValues<float>({1})).file(),
            "found extra.weight, which the model does not have");

  Maker nan;
  nan.Add("conv.weight", "F32", {2}, BytesOfValues<float>({1, std::numeric_limits<float>::quiet_NaN()}));
  Maker whole = WholeFile();
  for (const auto& item : whole.header().items()) {
    if (item.key() != "conv.weight") nan.Add(item.key(), "F32", item.value()["shape"], std::string(16, '\0'));
  }
  nan.header()["fc.bias"]["data_offsets"] = {0, 4};
  ExpectBad(nan.file(), "fc.bias has 4 bytes for 2 values of F32");
  nan.header()["fc.bias"]["data_offsets"] = {8, 16};
  nan.header()["bn.running_mean"]["data_offsets"] = {8, 12};
  ExpectBad(nan.file(), "conv.weight: found a value that is not finite");
}

TEST(LoadWeights, WhatIsNoSafetensorsIsRefused) {
  ExpectBad("", "no safetensors: it has 0 bytes");
  ExpectBad(std::string(8, '\xff'), "no safetensors: its header would have 18446744073709551615 bytes");
  ExpectBad(BytesOfValues<uint64_t>({4}) + "nope", "its header is no JSON object");
  ExpectBad(BytesOfValues<uint64_t>({2}) + "[]", "its header is no JSON object");
  Maker entry = WholeFile();
  entry.header()["conv.weight"] = 3;
  ExpectBad(entry.file(), "the header's entry of conv.weight is not as it should be");
  Maker negative = WholeFile();
  negative.header()["conv.weight"]["data_offsets"] = {-4, 0};
  ExpectBad(negative.file(), "the header's entry of conv.weight");
  const std::string whole = WholeFile().file();
  ExpectBad(whole.substr(0, whole.size() - 1), "no safetensors: bn.running_mean is at bytes [32, 36) of 35");
}

TEST(LoadWeights, AFileThatIsNotThereIsNamed) {
  std::vector<float> flat(9);
  const auto kept = LoadWeights("missing/model.safetensors", NetTensors(), absl::MakeSpan(flat));
  EXPECT_EQ(kept.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(kept.status().message()), HasSubstr("missing/model.safetensors"));
}

}  // namespace
}  // namespace slackline::worker::load_weights_test
