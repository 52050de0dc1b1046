#include "worker/settings/push_codecs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slackline::worker::push_codecs_test {
namespace {

using ErrorFeedback = PushCodecs::ErrorFeedback;

const std::vector<TensorInfo> kTensors = {{"conv1.weight", {8, 1, 3, 3}, true, false, 0},
                                          {"conv1.bias", {8}, true, false, 72},
                                          {"bn1.bias", {8}, true, false, 80},
                                          {"fc1.weight", {10, 20}, true, false, 88},
                                          {"fc1.bias", {10}, true, false, 288},
                                          {"bn1.running_mean", {8}, false, false, 298}};

codec::Codec Codec(const char* text) { return codec::ParseCodec(text).value(); }

// "72 int8+, 16 fp32": lengths, encodings, and a plus for feedback.
std::string Text(const PushCodecs& codecs) {
  const auto runs = MakeCodecRuns(codecs, kTensors);
  if (!runs.ok()) return std::string(runs.status().message());
  std::string text;
  for (const CodecRun& run : *runs) {
    text += (text.empty() ? "" : ", ") + std::to_string(run.elements) + " " + codec::ToString(run.codec) +
            (run.error_feedback ? "+" : "");
  }
  return text;
}

TEST(PushCodecs, FirstMatchingGroupCountsAndNeighboursJoin) {
  PushCodecs codecs{.codec = Codec("int8"), .groups = {{"*.bias", Codec("fp32")}, {"*1.*", Codec("topk:0.5")}}};
  EXPECT_EQ(Text(codecs), "72 topk:0.5+, 16 fp32, 200 topk:0.5+, 18 fp32");
  codecs.groups.resize(1);
  EXPECT_EQ(Text(codecs), "72 int8+, 16 fp32, 200 int8+, 18 fp32");
}

TEST(PushCodecs, AveragedTensorsAreNeverEncoded) {
  EXPECT_EQ(Text({.codec = Codec("bf16"), .groups = {}}), "298 bf16, 8 fp32");
  EXPECT_EQ(Text({.codec = Codec("bf16"), .groups = {{"bn1.*", Codec("int8")}}}), "80 bf16, 8 int8+, 210 bf16, 8 fp32");
}

TEST(PushCodecs, ErrorFeedbackIsForCoarseEncodingsUnlessToldOtherwise) {
  EXPECT_EQ(Text({.codec = Codec("bf16"), .groups = {}, .error_feedback = ErrorFeedback::kAlways}),
            "298 bf16+, 8 fp32");
  EXPECT_EQ(Text({.codec = Codec("int8"), .groups = {}, .error_feedback = ErrorFeedback::kNever}), "298 int8, 8 fp32");
}

TEST(PushCodecs, GroupThatMatchesNothingIsRefusedWithTheNames) {
  EXPECT_EQ(Text({.codec = {}, .groups = {{"*", {}}, {"*.running_*", {}}}}),
            "wire.groups[1].match: found \"*.running_*\", which no trained tensor is called; they are conv1.weight, "
            "conv1.bias, bn1.bias, fc1.weight, fc1.bias");
}

}  // namespace
}  // namespace slackline::worker::push_codecs_test
