// The layers that networks are made of, on tensors of FlatTensors. LibTorch inside.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "worker/model/flat_tensors.h"

namespace slackline::worker {

enum class Mode { kTraining, kEvaluation };

// Padded by half its window, so that with stride 1 the image keeps its size.
class Convolution {
 public:
  enum class Bias { kNone, kTrained };

  Convolution() = default;
  Convolution(const FlatTensors& tensors, const std::string& name, Bias bias, uint64_t stride = 1);

  // Each filter sees one channel, of as many as there are filters.
  void MakeDepthwise() { groups_ = weight_.size(0); }
  void set_padding(int64_t padding) { padding_ = padding; }

  at::Tensor operator()(const at::Tensor& images) const;
  // PyTorch's default, drawing weight and then bias.
  void FillUniform(at::Generator& generator);
  // Kaiming's normal distribution for ReLU that keeps the gradient's variance (fan out); a bias becomes 0.
  void FillKaimingNormal(at::Generator& generator);

 private:
  at::Tensor weight_;
  at::Tensor bias_;  // undefined without bias
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
  // PyTorch's default, drawing weight and then bias.
  void FillUniform(at::Generator& generator);
  // Weights uniform within 1 / sqrt(outputs), bias 0.
  void FillUniformByOutputs(at::Generator& generator);
  // Weights as FillTruncatedNormal(), bias 0.
  void FillTruncated(double deviation, at::Generator& generator);

 private:
  at::Tensor weight_;
  at::Tensor bias_;
  Gate gate_;
};

// The last layer of a network, or none: then it passes on what it gets.
class Classifier {
 public:
  Classifier() = default;
  // None where the layout has no such layer.
  Classifier(const FlatTensors& tensors, const std::string& name);

  bool there() const { return layer_.has_value(); }
  // Requires: there().
  Linear& layer() { return *layer_; }
  at::Tensor operator()(const at::Tensor& rows) const { return layer_ ? (*layer_)(rows) : rows; }

 private:
  std::optional<Linear> layer_;
};

// timm's trunc_normal_: normal with mean 0, cut at -2 and 2, by the inverse of its distribution.
void FillTruncatedNormal(at::Tensor& tensor, double deviation, at::Generator& generator);

// Training normalises with the batch's own statistics and moves the pushed copy of the running ones; the agreed ones
// stay. Evaluation normalises with the agreed ones.
class BatchNorm {
 public:
  BatchNorm() = default;
  // Borrows `tensors`.
  BatchNorm(const FlatTensors& tensors, const std::string& name);

  at::Tensor operator()(const at::Tensor& images, Mode mode) const;
  // Scale 1, shift 0, mean 0, variance 1.
  void Fill();

 private:
  at::Tensor scale_;
  at::Tensor shift_;
  const AgreedTensor* mean_ = nullptr;
  const AgreedTensor* variance_ = nullptr;
  Gate gate_;
};

// A convolution and the batch normalisation that follows it.
struct NormedConvolution {
  Convolution convolution;
  BatchNorm norm;

  at::Tensor operator()(const at::Tensor& images, Mode mode) const { return norm(convolution(images), mode); }
};

// Over the last dimension (Ba, Kiros, Hinton 2016), with timm's epsilon.
class LayerNorm {
 public:
  LayerNorm() = default;
  LayerNorm(const FlatTensors& tensors, const std::string& name);

  at::Tensor operator()(const at::Tensor& rows) const;
  // Scale 1, shift 0.
  void Fill();

 private:
  at::Tensor scale_;
  at::Tensor shift_;
  Gate gate_;
};

}  // namespace slackline::worker
