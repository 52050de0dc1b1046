// Layers of networks, on tensors of FlatTensors. Uses LibTorch.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "worker/model/networks/flat_tensors.h"

namespace slackline::worker {

enum class Mode { kTraining, kEvaluation };

// Convolution pads by half its window, so that the image keeps its size with stride 1.
class Convolution {
 public:
  enum class Bias { kNone, kTrained };

  Convolution() = default;
  Convolution(const FlatTensors& tensors, const std::string& name, Bias bias, uint64_t stride = 1);

  // Makes each filter see one channel. Requires: as many channels as filters.
  void MakeDepthwise() { groups_ = weight_.size(0); }
  void set_padding(int64_t padding) { padding_ = padding; }

  at::Tensor operator()(const at::Tensor& images) const;
  // Fills by PyTorch's default, and draws the weight before the bias.
  void FillUniform(at::Generator& generator);
  // Fills by Kaiming's normal distribution for ReLU, which preserves the gradient's variance (fan out). A bias becomes
  // 0.
  void FillKaimingNormal(at::Generator& generator);

 private:
  at::Tensor weight_;
  at::Tensor bias_;  // undefined if there is no bias
  Gate gate_;
  int64_t stride_ = 1;
  int64_t padding_ = 0;
  int64_t groups_ = 1;
};

class Linear {
 public:
  Linear() = default;
  Linear(const FlatTensors& tensors, const std::string& name);

  at::Tensor operator()(const at::Tensor& rows) const;
  // Fills by PyTorch's default, and draws the weight before the bias.
  void FillUniform(at::Generator& generator);
  // Fills weights uniformly within 1 / sqrt(outputs), bias 0.
  void FillUniformByOutputs(at::Generator& generator);
  // Fills weights by FillTruncatedNormal(), bias 0.
  void FillTruncated(double deviation, at::Generator& generator);

 private:
  at::Tensor weight_;
  at::Tensor bias_;
  Gate gate_;
};

// Classifier is the last layer of a network. If the network has none, it returns its input.
class Classifier {
 public:
  Classifier() = default;
  // Looks up the layer in the layout, which may lack it.
  Classifier(const FlatTensors& tensors, const std::string& name);

  bool there() const { return layer_.has_value(); }
  // Requires: there().
  Linear& layer() { return *layer_; }
  at::Tensor operator()(const at::Tensor& rows) const { return layer_ ? (*layer_)(rows) : rows; }

 private:
  std::optional<Linear> layer_;
};

// Fills a tensor as timm's trunc_normal_: normal with mean 0, cut at -2 and 2, by the inverse of the distribution
// function.
void FillTruncatedNormal(at::Tensor& tensor, double deviation, at::Generator& generator);

// BatchNorm normalises with the batch's own statistics in training, and with the agreed running statistics in
// evaluation. Training updates the pushed copy of the running statistics; the agreed ones do not change.
class BatchNorm {
 public:
  BatchNorm() = default;
  // Borrows `tensors`.
  BatchNorm(const FlatTensors& tensors, const std::string& name);

  at::Tensor operator()(const at::Tensor& images, Mode mode) const;
  // Fills with scale 1, shift 0, mean 0, variance 1.
  void Fill();

 private:
  at::Tensor scale_;
  at::Tensor shift_;
  const AgreedTensor* mean_ = nullptr;
  const AgreedTensor* variance_ = nullptr;
  Gate gate_;
};

// A convolution, followed by batch normalisation.
struct NormedConvolution {
  Convolution convolution;
  BatchNorm norm;

  at::Tensor operator()(const at::Tensor& images, Mode mode) const { return norm(convolution(images), mode); }
};

// LayerNorm normalises over the last dimension (Ba, Kiros, Hinton 2016), with timm's epsilon.
class LayerNorm {
 public:
  LayerNorm() = default;
  LayerNorm(const FlatTensors& tensors, const std::string& name);

  at::Tensor operator()(const at::Tensor& rows) const;
  // Fills with scale 1, shift 0.
  void Fill();

 private:
  at::Tensor scale_;
  at::Tensor shift_;
  Gate gate_;
};

}  // namespace slackline::worker
