// Networks with frozen parameters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "tests/worker/model_fixture.h"
#include "worker/model/layout.h"

namespace slackline::worker::frozen_test {
namespace {

std::map<std::string, std::vector<float>> ByName(const Model& model, absl::Span<const float> vector) {
  std::map<std::string, std::vector<float>> tensors;
  for (const TensorInfo& tensor : model.tensors()) {
    tensors[tensor.name] = Copy(vector.subspan(tensor.offset, tensor.elements()));
  }
  return tensors;
}

ModelSpec WithFrozen(ModelSpec spec, const std::vector<ParameterGroupRule>& groups) {
  spec.groups = groups;
  return spec;
}

TEST(Frozen, ParametersComeLastAndTheirStatisticsDoNot) {
  const auto layout = MakeLayout(WithFrozen(TinyCnn(true), {{"bn1.bias", false}, {"*1.*", true}}));
  ASSERT_TRUE(layout.ok()) << layout.status();
  std::vector<std::string> frozen;
  uint64_t end = 0;
  for (const TensorInfo& tensor : layout->tensors) {
    EXPECT_EQ(tensor.offset, end);
    end += tensor.elements();
    if (tensor.frozen) frozen.push_back(tensor.name);
    EXPECT_FALSE(tensor.frozen && tensor.trained);
    EXPECT_TRUE(tensor.frozen || frozen.empty()) << tensor.name << " lies behind what is frozen";
  }
  EXPECT_THAT(frozen, testing::ElementsAre("conv1.weight", "conv1.bias", "bn1.weight", "fc1.weight", "fc1.bias"));
  EXPECT_EQ(layout->elements, MakeLayout(TinyCnn(true))->elements);
}

TEST(Frozen, RulesThatMakeNoSenseAreRefused) {
  const auto refusal = [](const std::vector<ParameterGroupRule>& groups) {
    return std::string(MakeLayout(WithFrozen(TinyMlp(), groups)).status().message());
  };
  EXPECT_EQ(refusal({{"*", true}}), "optimizer.groups: all parameters are frozen; at least one must be trained");
  const std::string names = "; they are fc1.weight, fc1.bias, fc2.weight, fc2.bias";
  EXPECT_EQ(
      refusal({{"conv*", false}}),
      "optimizer.groups[0].match: found \"conv*\", which matches none of the parameters (* stands for any text, ? for "
      "one letter)" +
          names);
  EXPECT_EQ(refusal({{"fc1.*", false}, {"fc1.bias", true}}),
            "optimizer.groups[1].match: found \"fc1.bias\", but groups before it match all that it does; allowed is an "
            "earlier place in the list: fc1.bias");
}

TEST(Frozen, TheOthersHaveTheGradientsThatTheyHaveAnyhow) {
  const ModelSpec whole = TinyCnn(true);
  for (const std::vector<ParameterGroupRule>& groups :
       {std::vector<ParameterGroupRule>{{"conv*", true}, {"bn*", true}}, {{"fc*", true}}, {{"*.bias", true}}}) {
    const auto model = MakeModel(whole), tuned = MakeModel(WithFrozen(whole, groups));
    EXPECT_EQ(ByName(*model, model->parameters()), ByName(*tuned, tuned->parameters()));
    const images::Batch batch = TinyBatch(whole, 6);
    std::fill(tuned->push().begin(), tuned->push().end(), 99.0f);
    uint64_t ready = tuned->elements();
    const auto result = tuned->Step(ViewOf(batch), [&](uint64_t from) { ready = from; });
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(ready, 0u);
    EXPECT_EQ(result->loss, model->Step(ViewOf(batch))->loss);
    const auto expected = ByName(*model, model->push());
    for (const TensorInfo& tensor : tuned->tensors()) {
      const auto pushed = Copy(tuned->push().subspan(tensor.offset, tensor.elements()));
      if (tensor.frozen) {
        EXPECT_THAT(pushed, testing::Each(99.0f)) << tensor.name;
      } else {
        EXPECT_THAT(pushed, testing::Pointwise(testing::FloatNear(1e-6f), expected.at(tensor.name))) << tensor.name;
      }
    }
  }
}

TEST(Frozen, AreDrawnAsTheOthersAre) {
  ModelSpec spec = TinyMlp();
  spec.init = {.kind = Initialisation::Kind::kKaimingNormal};
  const auto model = MakeModel(spec), tuned = MakeModel(WithFrozen(spec, {{"fc1.*", true}}));
  EXPECT_EQ(ByName(*model, model->parameters()), ByName(*tuned, tuned->parameters()));
}

}  // namespace
}  // namespace slackline::worker::frozen_test
