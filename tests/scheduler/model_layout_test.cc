#include "scheduler/base/model_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace slackline::scheduler::model_layout_test {
namespace {

using testing::HasSubstr;

void AddTensor(wire::RegisterWorkerRequest& request, const std::string& name, std::vector<uint64_t> shape,
               bool trained = true) {
  wire::TensorSpec& tensor = *request.add_tensors();
  tensor.set_name(name);
  tensor.set_trained(trained);
  for (uint64_t extent : shape) tensor.add_shape(extent);
}

wire::RegisterWorkerRequest Request() {
  wire::RegisterWorkerRequest request;
  request.set_name("w-1");
  AddTensor(request, "weight", {10, 784});
  AddTensor(request, "bias", {10});
  AddTensor(request, "running_mean", {10}, /*trained=*/false);
  request.set_train_samples(60000);
  request.set_test_samples(10000);
  return request;
}

std::string MessageFor(const wire::RegisterWorkerRequest& request) {
  const absl::Status status = LayoutOf(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(ModelLayout, CountsTrainedElementsAndBuffers) {
  const auto layout = LayoutOf(Request());
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->trained_elements, 7850u);
  EXPECT_EQ(layout->elements, 7860u);
}

TEST(ModelLayout, PredictedWeightsNeedMomentumOfTheJobOrTheScript) {
  job::Job job;
  job.mutable_model()->set_kind(job::Model::EXTERNAL);
  job.mutable_consistency()->set_mode(job::Consistency::ASYNC);
  job.mutable_consistency()->set_weight_prediction(job::WeightPrediction::AUTO);
  EXPECT_THAT(LayoutOf(Request(), job).status().message(),
              HasSubstr("worker w-1: consistency.weight_prediction: found auto, with neither momentum nor adam"));
  wire::RegisterWorkerRequest scripted = Request();
  scripted.mutable_optimizer()->set_kind(job::Optimizer::ADAMW);
  EXPECT_TRUE(LayoutOf(scripted, job).ok()) << LayoutOf(scripted, job).status();
  job.mutable_optimizer()->set_momentum(0.9);
  EXPECT_TRUE(LayoutOf(Request(), job).ok());
}

TEST(ModelLayout, ScalarsHaveOneElement) {
  wire::RegisterWorkerRequest request = Request();
  AddTensor(request, "num_batches", {}, /*trained=*/false);
  EXPECT_EQ(LayoutOf(request)->elements, 7861u);
}

job::Job Groups(const std::vector<std::pair<std::string, bool>>& groups) {
  job::Job job;
  for (const auto& [match, frozen] : groups) {
    job::ParameterGroup& group = *job.mutable_optimizer()->add_groups();
    group.set_match(match);
    group.set_frozen(frozen);
  }
  return job;
}

wire::RegisterWorkerRequest Tuned() {
  wire::RegisterWorkerRequest request;
  request.set_name("w-1");
  AddTensor(request, "a.weight", {4, 5});
  AddTensor(request, "a.bias", {4});
  AddTensor(request, "b.bias", {3});
  AddTensor(request, "c.weight", {2});
  AddTensor(request, "c.bias", {1});
  AddTensor(request, "running_mean", {10}, /*trained=*/false);
  AddTensor(request, "stem.weight", {6}, /*trained=*/false);
  request.mutable_tensors(6)->set_frozen(true);
  request.set_train_samples(10);
  return request;
}

TEST(ModelLayout, GroupsHaveTheRangesOfTheTensorsThatTheyAreTheFirstToMatch) {
  const auto layout = LayoutOf(Tuned(), Groups({{"*.bias", false}, {"stem*", true}, {"c*", false}}));
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->trained_elements, 30u);
  EXPECT_EQ(layout->frozen_from, 40u);
  EXPECT_EQ(layout->elements, 46u);
  std::vector<std::vector<uint64_t>> ranges;
  for (const wire::GroupRange& range : layout->groups) ranges.push_back({range.begin(), range.end(), range.group()});
  // Neighbours of one group are one range.
  EXPECT_EQ(ranges, (std::vector<std::vector<uint64_t>>{{20, 27, 0}, {27, 29, 2}, {29, 30, 0}}));

  wire::InstallShardsRequest request;
  request.add_shards()->set_begin(28);
  request.mutable_shards(0)->set_end(46);
  AddOptimizer(*layout, request);
  EXPECT_EQ(request.groups_size(), 2);
  EXPECT_FALSE(request.has_optimizer());
}

TEST(ModelLayout, WorkersAndTheJobAgreeOnWhatIsFrozen) {
  const auto refusal = [](const wire::RegisterWorkerRequest& request, const job::Job& job) {
    return std::string(LayoutOf(request, job).status().message());
  };
  EXPECT_EQ(refusal(Tuned(), {}), "frozen tensor stem.weight [6], but no group of optimizer.groups freezes it");
  EXPECT_EQ(refusal(Tuned(), Groups({{"stem*", true}, {"b.*", true}})),
            "tensor b.bias [3], but optimizer.groups[1] (b.*) freezes it");
  EXPECT_THAT(
      refusal(Tuned(), Groups({{"stem*", true}, {"stem.weight", false}})),
      HasSubstr("optimizer.groups[1].match: found \"stem.weight\", but groups before it match all that it does"));
  wire::RegisterWorkerRequest large = Tuned();
  large.clear_tensors();
  for (int i = 0; i < 50; ++i) AddTensor(large, absl::StrCat("t", i), {2}, /*trained=*/true);
  EXPECT_THAT(refusal(large, Groups({{"u*", false}})),
              testing::EndsWith("; they are t0, t1, t2, t3, t4, t5, t6, t7, t8, t9 and 40 more"));
  wire::RegisterWorkerRequest request = Tuned();
  AddTensor(request, "late", {3}, /*trained=*/false);
  EXPECT_THAT(refusal(request, Groups({{"stem*", true}})), HasSubstr("buffer late [3] comes after a frozen tensor"));
  request = Tuned();
  request.mutable_tensors(6)->set_trained(true);
  EXPECT_THAT(refusal(request, {}), HasSubstr("both trained and frozen"));
}

job::Job OfScripts() {
  job::Job job;
  job.mutable_model()->set_kind(job::Model::EXTERNAL);
  return job;
}

// The optimizer has two groups: all matrices, and all biases.
wire::RegisterWorkerRequest OfScript() {
  wire::RegisterWorkerRequest request = Tuned();
  request.mutable_tensors()->RemoveLast();  // frozen
  request.mutable_optimizer()->set_kind(job::Optimizer::ADAMW);
  request.mutable_optimizer()->set_lr(0.002);
  job::ParameterGroup& biases = *request.mutable_optimizer()->add_groups();
  biases.set_match("biases");
  biases.set_weight_decay(0);
  for (const int bias : {1, 2, 4}) request.mutable_tensors(bias)->set_group(1);
  return request;
}

TEST(ModelLayout, AScriptNamesTheTensorsOfItsGroups) {
  const auto layout = LayoutOf(OfScript(), OfScripts());
  ASSERT_TRUE(layout.ok()) << layout.status();
  std::vector<std::vector<uint64_t>> ranges;
  for (const wire::GroupRange& range : layout->groups) ranges.push_back({range.begin(), range.end(), range.group()});
  EXPECT_EQ(ranges, (std::vector<std::vector<uint64_t>>{{20, 27, 0}, {29, 30, 0}}));

  wire::InstallShardsRequest request;
  AddOptimizer(*layout, request);
  EXPECT_EQ(request.optimizer().kind(), job::Optimizer::ADAMW);
  EXPECT_EQ(request.optimizer().groups_size(), 1);
}

TEST(ModelLayout, RefusesGroupsThatMakeNoSense) {
  const auto refusal = [](const wire::RegisterWorkerRequest& request) {
    return std::string(LayoutOf(request, OfScripts()).status().message());
  };
  wire::RegisterWorkerRequest request = OfScript();
  request.mutable_tensors(3)->set_group(2);
  EXPECT_EQ(refusal(request), "tensor c.weight [2] is in group 2 of its script, which has 1");
  request = OfScript();
  request.clear_optimizer();
  EXPECT_EQ(refusal(request), "tensor a.bias [4] is in group 1 of its script, which has 0");
  request = OfScript();
  for (wire::TensorSpec& tensor : *request.mutable_tensors()) tensor.clear_group();
  EXPECT_EQ(refusal(request), "group 1 of the script's optimizer (biases) has no tensor");
  request = OfScript();
  request.mutable_optimizer()->set_ema(0.9);
  EXPECT_THAT(refusal(request), HasSubstr("worker w-1: the script's optimizer: found ema: 0.9; allowed are kind, lr,"));
}

TEST(ModelLayout, AllScriptsGiveTheSameOptimizer) {
  wire::RegisterWorkerRequest other = OfScript();
  other.set_name("w-2");
  EXPECT_TRUE(CheckSameOptimizer(OfScript(), other).ok());
  const auto refusal = [&] { return std::string(CheckSameOptimizer(OfScript(), other).message()); };
  other.mutable_optimizer()->set_lr(0.1);
  EXPECT_EQ(
      refusal(),
      "the script of worker w-2 gives optimizer.lr: 0.1, but that of worker w-1, the first one, 0.002: all scripts "
      "of a job give the same optimizer");
  other = OfScript();
  other.mutable_optimizer()->mutable_groups(0)->set_weight_decay(0.5);
  EXPECT_THAT(refusal(), HasSubstr("optimizer.groups[0].weight_decay: 0.5, but"));
  other = OfScript();
  other.mutable_tensors(0)->set_group(1);
  EXPECT_THAT(refusal(), HasSubstr("the group of a.weight: 1, but"));
  ForgetOptimizer(other);
  EXPECT_THAT(
      refusal(),
      HasSubstr("gives no settings of the optimizer, but that of worker w-1, the first one, adamw, lr 0.002, "));
}

TEST(ModelLayout, RefusesWhatNoModelIs) {
  wire::RegisterWorkerRequest request = Request();
  AddTensor(request, "late", {3});
  EXPECT_THAT(MessageFor(request), HasSubstr("late"));
  request = Request();
  AddTensor(request, "huge", {uint64_t{1} << 40, uint64_t{1} << 40}, /*trained=*/false);
  EXPECT_THAT(MessageFor(request), HasSubstr("huge"));
  request = Request();
  AddTensor(request, "empty", {0}, /*trained=*/false);
  EXPECT_THAT(MessageFor(request), HasSubstr("empty"));
  request = Request();
  request.clear_tensors();
  EXPECT_THAT(MessageFor(request), HasSubstr("none is trained"));
  request = Request();
  request.set_train_samples(0);
  EXPECT_THAT(MessageFor(request), HasSubstr("0 training samples"));
}

TEST(ModelLayout, SecondWorkerMustAgreeWithTheFirst) {
  wire::RegisterWorkerRequest other = Request();
  EXPECT_TRUE(CheckSame(Request(), other).ok());
  other.mutable_tensors(0)->set_shape(0, 11);
  EXPECT_THAT(std::string(CheckSame(Request(), other).message()), HasSubstr("weight [11, 784]"));
  other = Request();
  other.mutable_tensors()->RemoveLast();
  EXPECT_THAT(std::string(CheckSame(Request(), other).message()), HasSubstr("number of tensors"));
  other = Request();
  other.set_train_samples(50000);
  EXPECT_THAT(std::string(CheckSame(Request(), other).message()), HasSubstr("50000"));
}

}  // namespace
}  // namespace slackline::scheduler::model_layout_test
