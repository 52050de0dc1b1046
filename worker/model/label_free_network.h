// A network that learns without labels: a backbone, a head in the place of its classifier, perhaps a teacher, and
// images that are remembered for evaluations. LibTorch inside.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "worker/model/neighbours.h"
#include "worker/model/network.h"

namespace slackline::worker {

// fully connected - batch normalisation - ReLU - fully connected; see head_layout.h.
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

// A backbone and its projection on an exponential average of the student's weights: BYOL's target network. It
// normalises by the batch, as the student does, and leaves nothing out at random.
//
// Thread-safety: none.
// Ownership:     owns its weights, on the student's device.
class Teacher {
 public:
  Teacher(const ModelSpec& spec, at::Device device);

  absl::Span<const float> parameters() const { return tensors_.parameters(); }
  // t = m t + (1 - m) w; the first time it becomes the student.
  void Move(const FlatTensors& student);
  void Set(absl::Span<const float> parameters);
  // Without a gradient.
  at::Tensor Project(const at::Tensor& images);

 private:
  const double momentum_;
  bool begun_ = false;
  FlatTensors tensors_;
  const std::unique_ptr<Network> backbone_;
  const Perceptron projection_;
  Noise noise_;
};

// In training it returns its loss; in an evaluation what the remembered images say, as shares of votes, n x classes.
class LabelFreeNetwork final : public Network {
 public:
  // Borrows `tensors`, which are the student's.
  LabelFreeNetwork(const ModelSpec& spec, const FlatTensors& tensors);

  void Initialise(at::Generator& generator) override;
  // Requires: Mode::kEvaluation, and remembers().
  at::Tensor Forward(const at::Tensor& images, Mode mode, Noise& noise) const override;
  // Images are (views x n) x ...: the first view of all of them, then the second.
  at::Tensor Train(const at::Tensor& images, const at::Tensor& labels, Noise& noise) const override;

  void Forget() { neighbours_->Forget(); }
  void Remember(const at::Tensor& images, const at::Tensor& labels, Noise& noise);
  bool remembers() const { return !neighbours_->empty(); }
  // The mean share of votes that are not for the label: what evaluations have as their loss.
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
