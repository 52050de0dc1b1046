#include "worker/model/networks/label_free_network.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "common/base/check.h"
#include "worker/model/head_layout.h"
#include "worker/model/losses/view_loss.h"
#include "worker/model/networks/autocast.h"

namespace slackline::worker {

Perceptron::Perceptron(const FlatTensors& tensors, const std::string& name)
    : first_(tensors, name + ".0"), norm_(tensors, name + ".1"), second_(tensors, name + ".3") {}

void Perceptron::Initialise(at::Generator& generator) {
  first_.FillUniform(generator);
  norm_.Fill();
  second_.FillUniform(generator);
}

at::Tensor Perceptron::operator()(const at::Tensor& rows, Mode mode) const {
  return second_(norm_(first_(rows), mode).relu_());
}

Teacher::Teacher(const ModelSpec& spec, at::Device device)
    : momentum_(spec.self_supervised.teacher_momentum),
      tensors_(*MakeLayout(spec), device),
      backbone_(MakeBackbone(spec, tensors_)),
      projection_(tensors_, kProjection),
      noise_(device) {
  noise_.Begin(Mode::kEvaluation, {});
}

void Teacher::Move(const FlatTensors& student) {
  if (begun_) return tensors_.MoveTowards(student, 1 - momentum_);
  tensors_.CopyParameters(student);
  begun_ = true;
}

void Teacher::Set(absl::Span<const float> parameters) {
  tensors_.WriteParameters(parameters);
  begun_ = true;
}

at::Tensor Teacher::Project(const at::Tensor& images) {
  const at::NoGradGuard no_grad;
  return projection_(backbone_->Forward(images, Mode::kTraining, noise_), Mode::kTraining);
}

LabelFreeNetwork::LabelFreeNetwork(const ModelSpec& spec, const FlatTensors& tensors)
    : settings_(spec.self_supervised),
      tensors_(tensors),
      backbone_(MakeBackbone(spec, tensors)),
      projection_(tensors, kProjection),
      teacher_(settings_.has_teacher() ? std::make_unique<Teacher>(spec, tensors.device()) : nullptr),
      neighbours_(std::make_unique<Neighbours>(spec)) {
  if (settings_.has_teacher()) prediction_.emplace(tensors, kPrediction);
}

void LabelFreeNetwork::Initialise(at::Generator& generator) {
  backbone_->Initialise(generator);
  projection_.Initialise(generator);
  if (prediction_) prediction_->Initialise(generator);
}

at::Tensor LabelFreeNetwork::Train(const at::Tensor& images, const at::Tensor& /*labels*/, Noise& noise) const {
  const int64_t views = settings_.views;
  at::Tensor rows = projection_(backbone_->Forward(images, Mode::kTraining, noise), Mode::kTraining);
  if (prediction_) rows = (*prediction_)(rows, Mode::kTraining);
  const at::Tensor targets = teacher_ != nullptr ? teacher_->Project(images) : at::Tensor();
  // Cosines near 1 need all their digits.
  const NoAutocast exact(images.device());
  if (teacher_ != nullptr) return DistillationLoss(rows.to(at::kFloat), targets.to(at::kFloat), views);
  return ContrastiveLoss(rows.to(at::kFloat), views, settings_.temperature);
}

at::Tensor LabelFreeNetwork::Forward(const at::Tensor& images, Mode mode, Noise& noise) const {
  SLACKLINE_CHECK(mode == Mode::kEvaluation && remembers());
  return neighbours_->Votes(backbone_->Forward(images, mode, noise));
}

void LabelFreeNetwork::Remember(const at::Tensor& images, const at::Tensor& labels, Noise& noise) {
  neighbours_->Remember(backbone_->Forward(images, Mode::kEvaluation, noise), labels);
}

at::Tensor LabelFreeNetwork::Missed(const at::Tensor& votes, const at::Tensor& labels) {
  return 1 - votes.gather(1, labels.unsqueeze(1)).mean();
}

absl::Span<const float> LabelFreeNetwork::teacher() const {
  return teacher_ != nullptr ? teacher_->parameters() : absl::Span<const float>();
}

void LabelFreeNetwork::MoveTeacher() {
  if (teacher_ != nullptr) teacher_->Move(tensors_);
}

void LabelFreeNetwork::SetTeacher(absl::Span<const float> parameters) {
  if (teacher_ != nullptr) teacher_->Set(parameters);
}

}  // namespace slackline::worker
