// Layout of vision transformers (Dosovitskiy et al.: An image is worth 16x16 words, 2021; sizes tiny and small: Touvron
// et al.: Training data-efficient image transformers, 2021) as timm builds them.
//
//   patches - patch_embed.proj - class token first - plus pos_embed - 12 blocks - norm - the class token - dropout -
//   head
//
// A block is  x + proj(attention(qkv(norm1(x))))  and then  x + fc2(GELU(fc1(norm2(x)))). In training each of the two
//             parts is left out for some images.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/model/layout_builder.h"
#include "worker/model/model.h"
#include "worker/model/stage_plan.h"

namespace slackline::worker {

struct VitShape {
  uint64_t width = 0;
  uint64_t heads = 0;
  uint64_t tokens = 0;  // number of patches plus the class token
};

inline constexpr uint64_t kVitBlocks = 12;

// Returns the sizes of a transformer. Requires: AddVit() accepts the spec.
VitShape ShapeOfVit(const ModelSpec& spec);
// Returns the embedding, each block, and the norm with the head.
std::vector<LayerPlan> LayersOfVit(const ModelSpec& spec);
// Returns a block's prefix, for example "blocks.3."
std::string VitBlockName(uint64_t block);

// Adds the tensors under timm's names: cls_token, pos_embed, patch_embed.proj.*, blocks.0.norm1.*, blocks.0.attn.qkv.*,
// ..., head.bias.
//   kInvalidArgument  the spec cannot be built: patch_size does not divide the image's height and width
absl::Status AddVit(const ModelSpec& spec, LayoutBuilder& builder);

}  // namespace slackline::worker
