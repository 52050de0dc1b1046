// Modules that take lists of images with objects.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/frontend/sugared_value.h>
#include <torch/library.h>

#include "absl/strings/str_cat.h"
#include "tests/images/test_data.h"
#include "worker/model/model.h"

namespace slackline::worker::scripted_scenes_test {
namespace {

// An operator without a gradient, as torchvision's library has some, and one that is made of others.
at::Tensor Doubled(const at::Tensor& values) {
  const at::AutoDispatchBelowADInplaceOrView below;
  return values * 2;
}
at::Tensor Tripled(const at::Tensor& values) { return values * 3; }
TORCH_LIBRARY(slackline_scenes, library) {
  library.def("doubled(Tensor values) -> Tensor");
  library.def("tripled(Tensor values) -> Tensor", &Tripled);
}
TORCH_LIBRARY_IMPL(slackline_scenes, CPU, library) { library.impl("doubled", &Doubled); }

// Makes them known to a module's source as `operators`.
struct WithOperators : torch::jit::NativeResolver {
  std::shared_ptr<torch::jit::SugaredValue> resolveValue(const std::string& name, torch::jit::GraphFunction& method,
                                                         const torch::jit::SourceRange& place) override {
    if (name == "operators") return std::make_shared<torch::jit::BuiltinModule>("slackline_scenes");
    return NativeResolver::resolveValue(name, method, place);
  }
};

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kHead[] = R"(
def forward(self, images: List[Tensor], targets: Optional[List[Dict[str, Tensor]]]) -> Tuple[Dict[str, Tensor], List[Dict[str, Tensor]]]:
    losses: Dict[str, Tensor] = {}
    found: List[Dict[str, Tensor]] = []
    if targets is not None:
        total = self.weight.sum() * 0
        for i in range(len(images)):
            target = targets[i]
            total = total + (images[i].sum() + target["boxes"].sum() + target["labels"].sum()) * self.weight.sum()
            if "masks" in target:
                total = total + target["masks"].sum() * self.weight.sum()
        losses["all"] = total / len(images)
        losses["none"] = self.weight.sum() * 0
    else:
        for image in images:
)";
// One object in the upper left pixel, whose label the weight says.
constexpr char kFindsOne[] = R"(
            masks = torch.zeros([1, 1, image.size(1), image.size(2)])
            masks[0, 0, 0, 0] = 0.75
            labels = self.weight.detach()
            found.append({"boxes": torch.ones([1, 4]), "labels": labels, "scores": torch.ones([1]), "masks": masks})
    return losses, found
)";

images::Scene SceneOf(uint32_t width, bool masks) {
  images::Scene scene;
  scene.channels = 3;
  scene.height = 1;
  scene.width = width;
  scene.pixels.assign(3 * width, 0.5f);
  scene.has_masks = masks;
  return scene;
}

// Two pixels wide, with an object.
images::Scene WithObject(bool masks) {
  images::Scene scene = SceneOf(2, masks);
  scene.boxes = {0, 0, 1, 1};
  scene.labels = {2};
  if (masks) scene.masks = {1, 0};
  return scene;
}

class ScriptedScenesTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Model>> Make(const std::string& source, LossKind loss = LossKind::kModel) {
    torch::jit::Module module("Detector");
    module.register_parameter("weight", at::ones({1}) * 2, /*is_buffer=*/false);
    module.define(source, std::make_shared<WithOperators>());
    const std::string path = folder_ / "module.pt";
    module.save(path);
    ModelSpec spec;
    spec.kind = ModelKind::kTorchScript;
    spec.classes = 3;
    spec.loss = loss;
    spec.torchscript = path;
    return Model::Create(spec, 1);
  }

  TemporaryFolder folder_;
};

TEST_F(ScriptedScenesTest, LossesAreAddedAndGradientsAreOfTheBatch) {
  const auto model = Make(absl::StrCat(kHead, kFindsOne));
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<images::Scene> scenes = {WithObject(true), SceneOf(4, true)};
  const std::vector<int64_t> labels(2);
  const auto step = (*model)->Step({.images = {}, .labels = labels, .scenes = scenes});
  ASSERT_TRUE(step.ok()) << step.status();
  // Pixels 3 and 6, boxes 2, label 2, mask 1: times the weight, 2, over 2 images.
  EXPECT_EQ(step->loss, 14);
  EXPECT_EQ(step->samples, 2u);
  EXPECT_THAT((*model)->push(), ElementsAre(7));
}

TEST_F(ScriptedScenesTest, WhatIsFoundComesBack) {
  const auto model = Make(absl::StrCat(kHead, kFindsOne));
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<images::Scene> scenes = {WithObject(true), SceneOf(3, true), WithObject(false)};
  const auto found = (*model)->Detect(scenes);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 3u);
  EXPECT_THAT((*found)[1].boxes, ElementsAre(1, 1, 1, 1));
  EXPECT_THAT((*found)[1].labels, ElementsAre(2));
  EXPECT_THAT((*found)[1].scores, ElementsAre(1));
  EXPECT_THAT((*found)[1].masks, ElementsAre(1, 0, 0));
  EXPECT_FALSE((*found)[2].has_masks);
  (*model)->parameters()[0] = 3;
  EXPECT_THAT(std::string((*model)->Detect(scenes).status().message()),
              HasSubstr("a label that is not below model.classes, which is 3"));
}

TEST_F(ScriptedScenesTest, WhatIsReturnedWronglyIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"            found = []\n    return losses, found\n", "a list of 0; expected are 1, one for each image"},
      {"            found.append({\"boxes\": torch.ones([1, 3]), \"labels\": torch.ones([1]), \"scores\": "
       "torch.ones([1])})\n"
       "    return losses, found\n",
       "\"boxes\" is a tensor of [1, 3]; expected is [1, 4]"},
      {"            found.append({\"labels\": torch.ones([1]), \"scores\": torch.ones([1])})\n    return losses, "
       "found\n",
       "forward has returned no \"boxes\""},
      {"            found.append({\"boxes\": torch.ones([1, 4]), \"labels\": torch.ones([1]), \"scores\": "
       "torch.ones([1]) / 0})\n"
       "    return losses, found\n",
       "a score that is not finite"},
      {"            found.append({\"boxes\": torch.ones([1, 4]), \"labels\": torch.ones([1]), \"scores\": "
       "torch.ones([1]), "
       "\"masks\": torch.ones([1, 5])})\n    return losses, found\n",
       "\"masks\" is a tensor of [1, 5]; expected is [1, 1, 2]"},
  };
  for (const auto& [end, expected] : cases) {
    const auto model = Make(absl::StrCat(kHead, end));
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_THAT(std::string((*model)->Detect({WithObject(true)}).status().message()), HasSubstr(expected));
  }
  const auto outputs = Make(
      "def forward(self, images: List[Tensor], targets: Optional[List[Dict[str, Tensor]]]):\n"
      "    return self.weight * 2\n");
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_THAT(std::string((*outputs)->Detect({WithObject(true)}).status().message()), HasSubstr("expected is a list"));
}

TEST_F(ScriptedScenesTest, OperatorsWithoutAGradientAreRefused) {
  const auto step = [&](const std::string& loss) {
    const auto model =
        Make("def forward(self, images: List[Tensor], targets: Optional[List[Dict[str, Tensor]]]):\n    return " +
             loss + "\n");
    const std::vector<images::Scene> scenes = {WithObject(true)};
    const std::vector<int64_t> labels(1);
    return (*model)->Step({.images = {}, .labels = labels, .scenes = scenes}).status();
  };
  // The second term's gradient reaches the weight.
  const absl::Status refused = step("(operators.doubled(self.weight) + self.weight).sum()");
  EXPECT_THAT(
      std::string(refused.message()),
      HasSubstr("the operator slackline_scenes::doubled has no gradient, so the parameters before it would not learn"));
  EXPECT_EQ(step("(operators.doubled(self.weight.detach()) + self.weight).sum()"), absl::OkStatus());
  EXPECT_EQ(step("operators.tripled(self.weight).sum()"), absl::OkStatus());
}

TEST_F(ScriptedScenesTest, TargetsThatMayNotBeNoneAreRefused) {
  const auto refusal = [&](const std::string& type) {
    const std::string source = "def forward(self, images: Tensor, targets: " + type + "):\n    return images\n";
    return std::string(Make(source, LossKind::kCrossEntropy).status().message());
  };
  EXPECT_THAT(refusal("Tensor"),
              HasSubstr("the second argument of its forward, targets, is a Tensor; allowed is one that may be None"));
  EXPECT_THAT(refusal("List[Dict[str, Tensor]]"), HasSubstr("targets, is a List[Dict[str, Tensor]]; allowed"));
  EXPECT_EQ(refusal("Optional[Tensor]"), "");
  EXPECT_EQ(refusal("Optional[Tensor] = None"), "");
}

TEST_F(ScriptedScenesTest, OnlyModelsWithALossOfTheirOwnTakeThem) {
  const auto model = Make(absl::StrCat(kHead, kFindsOne), LossKind::kCrossEntropy);
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<images::Scene> scenes = {WithObject(true)};
  const std::vector<int64_t> labels(1), more(2);
  EXPECT_THAT(std::string((*model)->Step({.images = {}, .labels = labels, .scenes = scenes}).status().message()),
              HasSubstr("only a model with a loss of its own"));
  const auto own = Make(absl::StrCat(kHead, kFindsOne));
  ASSERT_TRUE(own.ok());
  EXPECT_FALSE((*own)->Step({.images = {}, .labels = more, .scenes = scenes}).ok());
}

}  // namespace
}  // namespace slackline::worker::scripted_scenes_test
