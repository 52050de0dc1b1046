#include "scheduler/model_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slackline::scheduler {
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

TEST(ModelLayout, ScalarsHaveOneElement) {
  wire::RegisterWorkerRequest request = Request();
  AddTensor(request, "num_batches", {}, /*trained=*/false);
  EXPECT_EQ(LayoutOf(request)->elements, 7861u);
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
}  // namespace slackline::scheduler
