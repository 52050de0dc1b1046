// LayoutBuilder: lays a network's tensors out one after the other, layer by layer, under PyTorch's names.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/layout.h"

namespace slackline::worker {

// Largest model, in elements: 16 GiB of float32.
inline constexpr uint64_t kElementsMax = uint64_t{1} << 32;

// Widths of a fully connected layer, or channels of a convolution.
struct LayerShape {
  uint64_t inputs = 0;
  uint64_t outputs = 0;
};

struct ConvolutionShape {
  // inputs: the number that each output sees, which is smaller than the total in a grouped convolution
  LayerShape channels;
  uint64_t window = 1;  // side of the window
  bool bias = false;
};

// LayoutBuilder collects layers in the order in which a PyTorch module registers them.
class LayoutBuilder {
 public:
  void Convolution(const std::string& name, const ConvolutionShape& shape);
  void Linear(const std::string& name, const LayerShape& shape);
  void BatchNorm(const std::string& name, uint64_t channels);
  void LayerNorm(const std::string& name, uint64_t width);
  // Parameter() adds a trained tensor outside of any layer. Buffer() adds a tensor that is averaged.
  void Parameter(const std::string& name, std::vector<uint64_t> shape);
  void Buffer(const std::string& name, std::vector<uint64_t> shape);

  // Returns the layout. The order is trained tensors, buffers, then parameters that `groups` freeze.
  //   kInvalidArgument  more than kElementsMax elements; all parameters are frozen; a group is not used, because each
  //                     parameter matches an earlier group or not this one
  absl::StatusOr<Layout> Finish(const std::vector<ParameterGroupRule>& groups = {}) &&;

 private:
  absl::Status TakeFrozen(const std::vector<ParameterGroupRule>& groups, std::vector<TensorInfo>& frozen);
  void Add(std::string name, std::vector<uint64_t> shape, bool trained);

  std::vector<TensorInfo> trained_;
  std::vector<TensorInfo> buffers_;
  uint64_t elements_ = 0;
  bool too_large_ = false;
};

}  // namespace slackline::worker
