// LabelFreeNetwork: a network that learns without labels. It has a backbone, a head instead of the classifier, possibly
// a teacher, and remembered images for evaluations. Uses LibTorch.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "worker/model/networks/neighbours.h"
#include "worker/model/networks/network.h"

namespace slackline::worker {

// Perceptron is fully connected - batch normalisation - ReLU - fully connected; see head_layout.h.
class Perceptron {
 public:
  Perceptron(const FlatTensors& tensors, const std::string& name);

  void Initialise(at::Generator& generator);
  at::Tensor operator()(const at::Tensor& rows, Mode mode) const;

 private:
  Linear first_;
  BatchNorm norm_;
  Linear second_;
};

// Teacher is a backbone and its projection, with an exponential average of the student's weights: BYOL's target
// network. It normalises by the batch, as the student does, and uses no dropout.
//
// Thread-safety: none.
// Ownership:     owns its weights, on the student's device.
class Teacher {
 public:
  Teacher(const ModelSpec& spec, at::Device device);

  absl::Span<const float> parameters() const { return tensors_.parameters(); }
  // Moves the weights: t = m t + (1 - m) w. The first call copies the student's weights.
  void Move(const FlatTensors& student);
  void Set(absl::Span<const float> parameters);
  // Projects images without computing a gradient.
  at::Tensor Project(const at::Tensor& images);

 private:
  const double momentum_;
  bool begun_ = false;
  FlatTensors tensors_;
  const std::unique_ptr<Network> backbone_;
  const Perceptron projection_;
  Noise noise_;
};

// LabelFreeNetwork returns its loss in training. In an evaluation it returns the votes of the remembered images, as
// shares, n x classes.
class LabelFreeNetwork final : public Network {
 public:
  // Borrows `tensors`, which are the student's.
  LabelFreeNetwork(const ModelSpec& spec, const FlatTensors& tensors);

  void Initialise(at::Generator& generator) override;
  // Returns the votes. Requires: Mode::kEvaluation, and remembers().
  at::Tensor Forward(const at::Tensor& images, Mode mode, Noise& noise) const override;
  // Returns the loss. Images are (views x n) x ...: the first view of all images, then the second.
  at::Tensor Train(const at::Tensor& images, const at::Tensor& labels, Noise& noise) const override;

  void Forget() { neighbours_->Forget(); }
  void Remember(const at::Tensor& images, const at::Tensor& labels, Noise& noise);
  bool remembers() const { return !neighbours_->empty(); }
  // Returns the mean share of votes for other classes than the label's. Evaluations use it as their loss.
  static at::Tensor Missed(const at::Tensor& votes, const at::Tensor& labels);

  absl::Span<const float> teacher() const;
  void MoveTeacher();
  void SetTeacher(absl::Span<const float> parameters);

 private:
  const SelfSupervised settings_;
  const FlatTensors& tensors_;
  const std::unique_ptr<Network> backbone_;
  Perceptron projection_;
  std::optional<Perceptron> prediction_;
  const std::unique_ptr<Teacher> teacher_;
  const std::unique_ptr<Neighbours> neighbours_;
};

}  // namespace slackline::worker
