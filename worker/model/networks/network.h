// Network: the part of a model that differs between networks, namely the initial weights and the forward pass. Uses
// LibTorch.
//
// A new family of networks needs a layout (which tensors), with an entry in family.cc, and a network (what is done with
// them), with a case in MakePart().
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <memory>

#include "worker/model/model.h"
#include "worker/model/networks/flat_tensors.h"
#include "worker/model/networks/layers.h"
#include "worker/model/networks/noise.h"
#include "worker/model/stage_plan.h"

namespace slackline::worker {

// Network computes outputs from images.
//
// Thread-safety: none.
class Network {
 public:
  virtual ~Network() = default;

  // Fills the weights as PyTorch does when it creates such a module, with the same draws in the same order.
  virtual void Initialise(at::Generator& generator) = 0;
  // Runs the forward pass on images n x channels x height x width, channels last in memory unless the spec says
  // otherwise. Returns outputs n x classes; without a classifier, the values that it would have had as inputs. Dropout
  // draws from `noise`.
  virtual at::Tensor Forward(const at::Tensor& images, Mode mode, Noise& noise) const = 0;
  // Runs the forward pass in training, for networks that use the labels. Returns the loss with LossKind::kModel.
  virtual at::Tensor Train(const at::Tensor& images, const at::Tensor& /*labels*/, Noise& noise) const {
    return Forward(images, Mode::kTraining, noise);
  }
  // Process images with objects: return the loss in training, and what is found in evaluation. Only modules of the user
  // have these; others throw.
  virtual at::Tensor TrainScenes(absl::Span<const images::Scene> scenes) const;
  virtual std::vector<images::DetectedObjects> Detect(absl::Span<const images::Scene> scenes) const;
};

// Creates the network of a spec. Borrows `tensors`, which come from the layout of the same spec. With training without
// labels, the network is a LabelFreeNetwork.
std::unique_ptr<Network> MakeNetwork(const ModelSpec& spec, const FlatTensors& tensors);
// Creates only the layers of `range`, on tensors that contain theirs. The input of the part is the output of the
// preceding layer. Weights are initialised elsewhere. Requires: `range` is WholeOf() the spec, or CutModel() cuts the
// spec.
std::unique_ptr<Network> MakePart(const ModelSpec& spec, const FlatTensors& tensors, const LayerRange& range);
// Creates the network of the spec without the projection head of self-supervised training.
std::unique_ptr<Network> MakeBackbone(const ModelSpec& spec, const FlatTensors& tensors);

}  // namespace slackline::worker
