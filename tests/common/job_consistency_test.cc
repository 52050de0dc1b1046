// The job file's section `consistency`: which settings go together. Others are in job_file_test.cc.
#include <string>

#include "common/job/job_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slackline::job_consistency_test {
namespace {

std::string ConsistencyRefusal(const std::string& text) {
  return std::string(ParseJob(text, "j.yaml", {}).status().message());
}

TEST(JobConsistency, PredictionNeedsADirectionAndNoOtherCorrection) {
  for (const char* const allowed : {"optimizer: {momentum: 0.9}\nconsistency: {mode: async, weight_prediction: auto}",
                                    "optimizer: {kind: adam}\nconsistency: {mode: softsync, weight_prediction: auto}",
                                    "model: {kind: external}\nconsistency: {mode: ssp, weight_prediction: auto}"}) {
    EXPECT_EQ(ConsistencyRefusal(allowed), "") << allowed;
  }
  EXPECT_EQ(ConsistencyRefusal("consistency: {weight_prediction: auto, delay_compensation: constant}\n"),
            "j.yaml:1: consistency.weight_prediction: found auto with delay compensation; allowed is auto with "
            "consistency.delay_compensation: none\n"
            "j.yaml:1: consistency.weight_prediction: found auto with optimizer.kind: sgd without momentum; allowed is "
            "auto with optimizer.momentum above 0, or with optimizer.kind: adam or adamw and beta1 above 0");
  EXPECT_EQ(ConsistencyRefusal("optimizer: {kind: adam}\nconsistency: {mode: bsp, weight_prediction: auto}\n"),
            "j.yaml:2: consistency.weight_prediction: found a value together with bsp; allowed is only with "
            "consistency.mode: async, ssp or softsync (add --set consistency.weight_prediction=none to take the "
            "default back)");
}

TEST(JobConsistency, RobustAggregationCountsAllPushesOfAStepAlike) {
  for (const char* const allowed : {"{mode: bsp, weighting: uniform, aggregation: median}",
                                    "{mode: quorum, weighting: uniform, aggregation: trimmed_mean, trim: 0.3}"}) {
    EXPECT_EQ(ConsistencyRefusal(std::string("cluster: {workers: 4}\nconsistency: ") + allowed), "") << allowed;
  }
  EXPECT_EQ(ConsistencyRefusal("consistency: {mode: bsp, aggregation: median}\ncluster: {workers: 3}\n"),
            "j.yaml:1: consistency.aggregation: found median with weighting: samples; allowed is median with "
            "consistency.weighting: uniform: a wrong worker could claim any number of samples");
  for (const char* const other : {"mode: async", "mode: ssp", "mode: softsync", "mode: quorum, late: count"}) {
    EXPECT_THAT(
        ConsistencyRefusal(std::string("consistency: {weighting: uniform, aggregation: median, ") + other + "}"),
        testing::AllOf(testing::HasSubstr("j.yaml:1: consistency.aggregation: found a value together with "),
                       testing::HasSubstr("; allowed is only with consistency.mode: bsp or quorum")))
        << other;
  }
  EXPECT_EQ(
      ConsistencyRefusal(
          "consistency: {mode: bsp, weighting: uniform, aggregation: median}\n"
          "wire: {encoding: topk:0.01, groups: [{match: a, encoding: topk:0.5}]}\ncluster: {workers: 3}\n"),
      "j.yaml:2: wire.encoding: found topk:0.01 with aggregation: median; allowed is fp32, bf16, fp16 or int8: of "
      "a value that few pushes have, the others' zeros would remain\n"
      "j.yaml:2: wire.groups[0].encoding: found topk:0.5 with aggregation: median; allowed is fp32, bf16, fp16 or "
      "int8: of a value that few pushes have, the others' zeros would remain");
  EXPECT_EQ(
      ConsistencyRefusal("consistency: {mode: quorum, quorum: 0.5, weighting: uniform, aggregation: median}\n"
                         "cluster: {workers: 4}\n"),
      "j.yaml:1: consistency.aggregation: found median with steps of 2 pushes; allowed is median with at least 3 in "
      "a step, from cluster.workers and consistency.quorum");
  EXPECT_THAT(
      ConsistencyRefusal("consistency: {mode: quorum, late: count, weighting: uniform, aggregation: median}"),
      testing::HasSubstr("found a value together with quorum with consistency.late: count; allowed is only with "
                         "consistency.mode: bsp or quorum"));
  EXPECT_EQ(ConsistencyRefusal("consistency: {mode: bsp, trim: 0.3}\n"),
            "j.yaml:1: consistency.trim: found a value together with aggregation: mean; allowed is only with "
            "consistency.aggregation: trimmed_mean (add --set consistency.trim=0.2 to take the default back)");
}

}  // namespace
}  // namespace slackline::job_consistency_test
