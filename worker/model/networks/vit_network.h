// The forward pass of vision transformers; see vit_layout.h.
#pragma once

#include <vector>

#include "worker/model/networks/network.h"
#include "worker/model/stage_plan.h"
#include "worker/model/vit_layout.h"

namespace slackline::worker {

struct TransformerBlock {
  LayerNorm norm1;
  Linear qkv;
  Linear proj;
  LayerNorm norm2;
  Linear fc1;
  Linear fc2;
  double stochastic_depth = 0;
  // Parameters that are not frozen.
  std::vector<at::Tensor> trained = {};

  // Rows are n x tokens x width.
  at::Tensor Attend(const at::Tensor& rows, uint64_t heads) const;
  // Masks by which the addition of each half to each image is multiplied; undefined: 1.
  struct Masks {
    at::Tensor attention;
    at::Tensor mlp;
  };
  Masks Draw(const at::Tensor& rows, Noise& noise) const;
  at::Tensor operator()(const at::Tensor& rows, uint64_t heads, const Masks& masks) const;
};

class VitNetwork final : public Network {
 public:
  // Borrows `tensors`, which contain at least those of `range`. Layers are the embedding, each block, and the norm with
  // the head.
  VitNetwork(const ModelSpec& spec, const FlatTensors& tensors, const LayerRange& range);

  void Initialise(at::Generator& generator) override;
  at::Tensor Forward(const at::Tensor& images, Mode mode, Noise& noise) const override;

 private:
  at::Tensor Embed(const at::Tensor& images) const;

  const VitShape shape_;
  const double dropout_;
  const bool checkpointing_;
  const Precision precision_;
  bool embeds_ = false;
  bool ends_ = false;
  // Members of the embedding.
  at::Tensor class_token_;
  at::Tensor positions_;
  Gate gate_;
  Convolution patches_;
  std::vector<TransformerBlock> blocks_;
  LayerNorm norm_;
  Classifier head_;
};

}  // namespace slackline::worker
