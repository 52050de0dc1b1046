#include "worker/model/networks/vit_network.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "worker/model/networks/recompute.h"

namespace slackline::worker {
namespace {

// timm's.
constexpr double kVitDeviation = 0.02;
constexpr double kClassTokenDeviation = 1e-6;

TransformerBlock MakeTransformerBlock(const FlatTensors& tensors, const std::string& name, double stochastic_depth) {
  TransformerBlock block = {.norm1 = LayerNorm(tensors, name + "norm1"),
                            .qkv = Linear(tensors, name + "attn.qkv"),
                            .proj = Linear(tensors, name + "attn.proj"),
                            .norm2 = LayerNorm(tensors, name + "norm2"),
                            .fc1 = Linear(tensors, name + "mlp.fc1"),
                            .fc2 = Linear(tensors, name + "mlp.fc2"),
                            .stochastic_depth = stochastic_depth};
  for (const char* layer : {"norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"}) {
    for (const char* part : {".weight", ".bias"}) {
      const at::Tensor parameter = tensors.Trained(name + layer + part);
      if (parameter.requires_grad()) block.trained.push_back(parameter);
    }
  }
  return block;
}

at::Tensor Masked(const at::Tensor& x, const at::Tensor& mask) { return mask.defined() ? x * mask : x; }

}  // namespace

at::Tensor TransformerBlock::Attend(const at::Tensor& rows, uint64_t heads) const {
  const int64_t count = rows.size(0), tokens = rows.size(1), width = rows.size(2);
  const auto parts = static_cast<int64_t>(heads);
  // 3 x n x heads x tokens x width of a head
  const at::Tensor mixed = qkv(rows).view({count, tokens, 3, parts, width / parts}).permute({2, 0, 3, 1, 4});
  const at::Tensor seen = at::scaled_dot_product_attention(mixed[0], mixed[1], mixed[2]);
  return proj(seen.transpose(1, 2).reshape({count, tokens, width}));
}

TransformerBlock::Masks TransformerBlock::Draw(const at::Tensor& rows, Noise& noise) const {
  // In the order in which they are used.
  const at::Tensor attention = noise.ImageMask(rows, stochastic_depth);
  return {.attention = attention, .mlp = noise.ImageMask(rows, stochastic_depth)};
}

at::Tensor TransformerBlock::operator()(const at::Tensor& rows, uint64_t heads, const Masks& masks) const {
  const at::Tensor x = rows + Masked(Attend(norm1(rows), heads), masks.attention);
  return x + Masked(fc2(at::gelu(fc1(norm2(x)))), masks.mlp);
}

VitNetwork::VitNetwork(const ModelSpec& spec, const FlatTensors& tensors, const LayerRange& range)
    : shape_(ShapeOfVit(spec)),
      dropout_(spec.dropout),
      checkpointing_(spec.checkpointing),
      precision_(spec.precision),
      embeds_(range.begin == 0),
      ends_(range.end == kVitBlocks + 2) {
  if (embeds_) {
    class_token_ = tensors.Trained("cls_token");
    positions_ = tensors.Trained("pos_embed");
    gate_ = Gate(tensors, {"cls_token", "pos_embed"});
    patches_ = Convolution(tensors, "patch_embed.proj", Convolution::Bias::kTrained, spec.patch_size);
    patches_.set_padding(0);
  }
  // Block 0 is layer 1.
  for (uint64_t i = std::max<uint64_t>(range.begin, 1) - 1; i < std::min(range.end - 1, kVitBlocks); ++i) {
    const double depth = static_cast<double>(i) / static_cast<double>(kVitBlocks - 1);
    blocks_.push_back(MakeTransformerBlock(tensors, VitBlockName(i), spec.stochastic_depth * depth));
  }
  if (ends_) {
    norm_ = LayerNorm(tensors, "norm");
    head_ = Classifier(tensors, "head");
  }
}

// timm makes all layers first, each with PyTorch's default draws, and then draws all but the patches' again. The first
// draws count only in that they move the generator.
void VitNetwork::Initialise(at::Generator& generator) {
  std::vector<Linear*> linears;
  for (TransformerBlock& block : blocks_) {
    for (Linear* layer : {&block.qkv, &block.proj, &block.fc1, &block.fc2}) linears.push_back(layer);
    block.norm1.Fill();
    block.norm2.Fill();
  }
  if (head_.there()) linears.push_back(&head_.layer());
  norm_.Fill();
  patches_.FillUniform(generator);
  for (Linear* layer : linears) layer->FillUniform(generator);
  FillTruncatedNormal(positions_, kVitDeviation, generator);
  class_token_.normal_(0, kClassTokenDeviation, generator);
  for (Linear* layer : linears) layer->FillTruncated(kVitDeviation, generator);
}

at::Tensor VitNetwork::Embed(const at::Tensor& images) const {
  const at::Tensor x = patches_(images).flatten(2).transpose(1, 2);
  gate_.Pass();
  return at::cat({class_token_.expand({x.size(0), -1, -1}), x}, 1) + positions_;
}

at::Tensor VitNetwork::Forward(const at::Tensor& images, Mode mode, Noise& noise) const {
  at::Tensor x = embeds_ ? Embed(images) : images;
  for (const TransformerBlock& block : blocks_) {
    const TransformerBlock::Masks masks = block.Draw(x, noise);
    const auto compute = [&block, masks, heads = shape_.heads](const at::Tensor& rows) {
      return block(rows, heads, masks);
    };
    x = checkpointing_ && mode == Mode::kTraining ? Recomputed(x, block.trained, precision_, compute) : compute(x);
  }
  if (!ends_) return x;
  x = norm_(x).select(1, 0);
  return head_.there() ? head_(noise.Dropout(x, dropout_)) : x;
}

}  // namespace slackline::worker
