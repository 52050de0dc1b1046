#include "worker/model/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/model/family.h"

namespace slackline::worker::layout_test {
namespace {

using ::testing::HasSubstr;

std::string Names(const Layout& layout) {
  return absl::StrJoin(layout.tensors, " ", [](std::string* out, const TensorInfo& tensor) {
    absl::StrAppend(out, tensor.name, "[", absl::StrJoin(tensor.shape, ","), "]@", tensor.offset,
                    tensor.trained ? "" : "!");
  });
}

ModelSpec SmallCnn() {
  return {.kind = ModelKind::kCnn, .hidden = {5}, .filters = {2, 3}, .classes = 4, .height = 9, .width = 8};
}

TEST(Layout, MlpIsAChainOfLinears) {
  const absl::StatusOr<Layout> layout = MakeLayout({.hidden = {192}, .filters = {}});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(Names(*layout), "fc1.weight[192,784]@0 fc1.bias[192]@150528 fc2.weight[10,192]@150720 fc2.bias[10]@152640");
  EXPECT_EQ(layout->elements, 152650u);
  EXPECT_EQ(layout->trained_elements, 152650u);
}

TEST(Layout, PoolingHalvesTheImageRoundedDown) {
  const absl::StatusOr<Layout> layout = MakeLayout(SmallCnn());
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(Names(*layout),
            "conv1.weight[2,1,3,3]@0 conv1.bias[2]@18 conv2.weight[3,2,3,3]@20 conv2.bias[3]@74 "
            "fc1.weight[5,12]@77 fc1.bias[5]@137 fc2.weight[4,5]@142 fc2.bias[4]@162");
}

TEST(Layout, BuffersFollowAllThatIsTrained) {
  ModelSpec spec = SmallCnn();
  spec.batch_norm = true;
  const absl::StatusOr<Layout> layout = MakeLayout(spec);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(Names(*layout),
            "conv1.weight[2,1,3,3]@0 conv1.bias[2]@18 bn1.weight[2]@20 bn1.bias[2]@22 "
            "conv2.weight[3,2,3,3]@24 conv2.bias[3]@78 bn2.weight[3]@81 bn2.bias[3]@84 "
            "fc1.weight[5,12]@87 fc1.bias[5]@147 fc2.weight[4,5]@152 fc2.bias[4]@172 "
            "bn1.running_mean[2]@176! bn1.running_var[2]@178! bn2.running_mean[3]@180! bn2.running_var[3]@183!");
  EXPECT_EQ(layout->trained_elements, 176u);
  EXPECT_EQ(layout->elements, 186u);
}

// The numbers are torchvision's: 11,689,512 parameters with 1000 classes and 3 channels.
TEST(Layout, Resnet18IsTorchvisions) {
  const ModelSpec spec{.kind = ModelKind::kResnet18,
                       .hidden = {},
                       .filters = {},
                       .classes = 1000,
                       .channels = 3,
                       .height = 224,
                       .width = 224};
  const absl::StatusOr<Layout> layout = MakeLayout(spec);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->trained_elements, 11'689'512u);
  EXPECT_EQ(layout->elements, 11'689'512u + 2 * 4'800);
  EXPECT_EQ(layout->tensors.size(), 102u);
  const std::string names = Names(*layout);
  EXPECT_THAT(names, ::testing::StartsWith("conv1.weight[64,3,7,7]@0 bn1.weight[64]@9408 bn1.bias[64]@9472 "
                                           "layer1.0.conv1.weight[64,64,3,3]@9536 "));
  EXPECT_THAT(names, HasSubstr(" layer2.0.bn2.bias[128]@379072 layer2.0.downsample.0.weight[128,64,1,1]@379200 "
                               "layer2.0.downsample.1.weight[128]@387392 layer2.0.downsample.1.bias[128]@387520 "
                               "layer2.1.conv1.weight[128,128,3,3]@387648 "));
  EXPECT_THAT(names, HasSubstr(" fc.weight[1000,512]@11176512 fc.bias[1000]@11688512 bn1.running_mean[64]@11689512! "));
  EXPECT_THAT(names, ::testing::EndsWith(" layer4.1.bn2.running_var[512]@11698600!"));
}

struct Published {
  ModelKind kind;
  uint64_t parameters;  // with 1000 classes and images of 3 x 224 x 224
  uint64_t buffers;
  size_t tensors;
};

ModelSpec ForImagenet(ModelKind kind) {
  ModelSpec spec;
  spec.kind = kind;
  spec.classes = 1000;
  spec.channels = 3;
  spec.height = spec.width = 224;
  return spec;
}

// What torchvision and timm say of theirs; T-CNN-2 by hand.
TEST(Layout, ModelsHaveAsManyParametersAsTheirReferences) {
  for (const Published& published : std::vector<Published>{
           {ModelKind::kResnet34, 21'797'672, 2 * 8'512, 36 * 5 + 2},
           {ModelKind::kResnet50, 25'557'032, 2 * 26'560, 53 * 5 + 2},
           {ModelKind::kResnet101, 44'549'160, 2 * 52'672, 104 * 5 + 2},
           {ModelKind::kEfficientnetB0, 5'288'548, 2 * 21'008, 49 * 5 + 16 * 4 + 2},
           {ModelKind::kVitTiny, 5'717'416, 0, 152},
           {ModelKind::kVitSmall, 22'050'664, 0, 152},
           {ModelKind::kVitBase, 86'567'656, 0, 152},
           {ModelKind::kTextureCnn2, 96 * 364 + 256 * 2'401 + 4'096 * 257 + 4'096 * 4'097 + 1'000 * 4'097, 0, 10}}) {
    ModelSpec spec = ForImagenet(published.kind);
    if (published.kind == ModelKind::kTextureCnn2) spec.hidden = {4096, 4096};
    const absl::StatusOr<Layout> layout = MakeLayout(spec);
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_EQ(layout->trained_elements, published.parameters) << KindName(published.kind);
    EXPECT_EQ(layout->elements - layout->trained_elements, published.buffers) << KindName(published.kind);
    EXPECT_EQ(layout->tensors.size(), published.tensors) << KindName(published.kind);
  }
}

TEST(Layout, EachBuiltInKindHasAFamilyAndStagesIfTheJobFileSaysSo) {
  for (const ModelFacts& facts : AllModels()) {
    if (!facts.built_in()) continue;
    EXPECT_EQ(FamilyOf(facts.kind).layers != nullptr, facts.has_stages) << facts.name;
  }
}

TEST(Layout, NamesAreTorchvisionsAndTimms) {
  EXPECT_THAT(Names(*MakeLayout(ForImagenet(ModelKind::kResnet50))),
              HasSubstr(" layer1.0.conv3.weight[256,64,1,1]@50752 layer1.0.bn3.weight[256]@67136 "
                        "layer1.0.bn3.bias[256]@67392 layer1.0.downsample.0.weight[256,64,1,1]@67648 "));
  const std::string efficientnet = Names(*MakeLayout(ForImagenet(ModelKind::kEfficientnetB0)));
  EXPECT_THAT(efficientnet, HasSubstr(" features.1.0.block.0.0.weight[32,1,3,3]@928 "));
  EXPECT_THAT(efficientnet, HasSubstr(" features.2.0.block.2.fc1.weight[4,96,1,1]@"));
  EXPECT_THAT(efficientnet, HasSubstr(" features.8.1.bias[1280]@"));
  const std::string vit = Names(*MakeLayout(ForImagenet(ModelKind::kVitTiny)));
  EXPECT_THAT(vit, ::testing::StartsWith("cls_token[1,1,192]@0 pos_embed[1,197,192]@192 "
                                         "patch_embed.proj.weight[192,3,16,16]@38016 "));
  EXPECT_THAT(vit, HasSubstr(" blocks.11.attn.qkv.weight[576,192]@"));
  EXPECT_THAT(vit, ::testing::EndsWith(" head.weight[1000,192]@5524416 head.bias[1000]@5716416"));
}

TEST(Layout, PatchesMustFitTheImage) {
  ModelSpec spec = ForImagenet(ModelKind::kVitTiny);
  spec.height = spec.width = 28;
  EXPECT_EQ(MakeLayout(spec).status().message(),
            "model.patch_size is 16, images are 28x28; allowed is what divides both: 1, 2, 4, 7, 14, 28");
  spec.patch_size = 7;
  EXPECT_TRUE(MakeLayout(spec).ok());
}

TEST(Layout, TextureNeedsSomethingToPool) {
  ModelSpec spec = ForImagenet(ModelKind::kTextureCnn2);
  spec.height = 14;
  EXPECT_THAT(std::string(MakeLayout(spec).status().message()), HasSubstr("at least 1 x 15 x 15 is needed"));
  spec.height = 15;
  EXPECT_TRUE(MakeLayout(spec).ok());
}

TEST(Layout, ResnetTakesGreyAndColouredImagesOfAnySize) {
  ModelSpec spec{.kind = ModelKind::kResnet18, .hidden = {}, .filters = {}, .channels = 1, .height = 1, .width = 1};
  EXPECT_TRUE(MakeLayout(spec).ok());
  spec.channels = 2;
  EXPECT_THAT(std::string(MakeLayout(spec).status().message()), HasSubstr("images of 2 x 1 x 1 do not fit"));
}

TEST(Layout, WhatCannotBeBuiltIsRefusedWithTheReason) {
  const auto refusal = [](auto&& change) {
    ModelSpec spec = SmallCnn();
    change(spec);
    const absl::Status status = MakeLayout(spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal([](ModelSpec& spec) { spec.height = 3; }), HasSubstr("1 x 3 x 8 are too small"));
  EXPECT_THAT(refusal([](ModelSpec& spec) { spec.filters = {2}; }), HasSubstr("given 1 numbers of filters"));
  EXPECT_THAT(refusal([](ModelSpec& spec) { spec.filters = {2, 0}; }), HasSubstr("0 units"));
  EXPECT_THAT(refusal([](ModelSpec& spec) { spec.hidden = {}; }), HasSubstr("no hidden layer"));
  EXPECT_THAT(refusal([](ModelSpec& spec) { spec.classes = 1; }), HasSubstr("has 1 classes"));
  EXPECT_THAT(refusal([](ModelSpec& spec) { spec.hidden = {4000000000, 4000000000}; }), HasSubstr("more than"));
}

}  // namespace
}  // namespace slackline::worker::layout_test
