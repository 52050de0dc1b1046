// What tells one network from another, behind Model: how its weights begin, and its forward pass. LibTorch inside.
//
// A new family of networks has a layout (which tensors) and a network (what is done with them), a case in MakeLayout()
// and one in MakeNetwork().
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <memory>

#include "worker/model/flat_tensors.h"
#include "worker/model/layers.h"
#include "worker/model/model.h"
#include "worker/model/noise.h"
#include "worker/model/stage_plan.h"

namespace slackline::worker {

// Thread-safety: none.
class Network {
 public:
  virtual ~Network() = default;

  // Fills the weights as PyTorch does when it makes such a module, with the same draws in the same order.
  virtual void Initialise(at::Generator& generator) = 0;
  // Images n x channels x height x width, channels last in memory unless the spec has them otherwise; returns outputs n
  // x classes, or without a classifier what it would have had as inputs. What is left out at random is drawn from
  // `noise`.
  virtual at::Tensor Forward(const at::Tensor& images, Mode mode, Noise& noise) const = 0;
  // The same in training, for networks that look at the labels; with LossKind::kModel it returns the loss.
  virtual at::Tensor Train(const at::Tensor& images, const at::Tensor& /*labels*/, Noise& noise) const {
    return Forward(images, Mode::kTraining, noise);
  }
  // Of images with objects: the loss in training, and what is found in evaluation. Only modules of the user's have
  // these; others throw.
  virtual at::Tensor TrainScenes(absl::Span<const Scene> scenes) const;
  virtual std::vector<Found> Detect(absl::Span<const Scene> scenes) const;
};

// Borrows `tensors`, which come from the layout of the same spec. Where that is to learn without labels, it is a
// LabelFreeNetwork.
std::unique_ptr<Network> MakeNetwork(const ModelSpec& spec, const FlatTensors& tensors);
// Of a chain of layers, only these, on tensors that have theirs: what it passes forward is what the layer before them
// makes. Its weights begin elsewhere. Requires: CutModel() cuts the spec.
std::unique_ptr<Network> MakePart(const ModelSpec& spec, const FlatTensors& tensors, const LayerRange& range);
// The same without a head.
std::unique_ptr<Network> MakeBackbone(const ModelSpec& spec, const FlatTensors& tensors);

}  // namespace slackline::worker
