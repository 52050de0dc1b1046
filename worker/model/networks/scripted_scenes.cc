#include "worker/model/networks/scripted_scenes.h"

#include <ATen/ATen.h>

#include <string>

namespace slackline::worker {
namespace {

// Copies: on the CPU none.
template <typename Value>
at::Tensor Borrowed(const std::vector<Value>& values, at::IntArrayRef shape, at::ScalarType type, at::Device device) {
  if (values.empty()) return at::zeros(shape, at::TensorOptions(type).device(device));
  return at::from_blob(const_cast<Value*>(values.data()), shape, type).to(device);
}

// The tensor `key` of what was found on one image, on the CPU; undefined where there is none.
at::Tensor Entry(const c10::IValue& found, const char* key) {
  TORCH_CHECK(found.isGenericDict(), "model.torchscript: in evaluation forward has returned a list of ",
              found.tagKind(), "; expected are dictionaries");
  const auto dictionary = found.toGenericDict();
  const auto entry = dictionary.find(key);
  if (entry == dictionary.end()) return {};
  TORCH_CHECK(entry->value().isTensor(), "model.torchscript: \"", key, "\" is ", entry->value().tagKind(),
              "; expected is a tensor");
  return entry->value().toTensor().detach().to(at::kCPU);
}

// The same in a type and a shape.
at::Tensor Shaped(const c10::IValue& found, const char* key, at::ScalarType type, at::IntArrayRef shape) {
  const at::Tensor tensor = Entry(found, key);
  TORCH_CHECK(tensor.defined(), "model.torchscript: in evaluation forward has returned no \"", key, "\"");
  TORCH_CHECK(tensor.sizes() == shape, "model.torchscript: \"", key, "\" is a tensor of ", tensor.sizes(),
              "; expected is ", shape);
  return tensor.to(type).contiguous();
}

// Ones and zeros, n x height x width.
void CopyMasks(const at::Tensor& masks, int64_t objects, const images::Scene& scene, images::DetectedObjects& out) {
  const int64_t height = scene.height, width = scene.width;
  TORCH_CHECK(masks.sizes() == at::IntArrayRef({objects, height, width}) ||
                  masks.sizes() == at::IntArrayRef({objects, 1, height, width}),
              "model.torchscript: \"masks\" is a tensor of ", masks.sizes(), "; expected is [", objects, ", ", height,
              ", ", width, "]");
  const at::Tensor ones = (masks.is_floating_point() ? masks.gt(0.5) : masks.ne(0)).to(at::kByte).contiguous();
  out.has_masks = true;
  out.masks.assign(ones.const_data_ptr<uint8_t>(), ones.const_data_ptr<uint8_t>() + ones.numel());
}

images::DetectedObjects FoundOn(const c10::IValue& made, const images::Scene& scene, int64_t classes) {
  images::DetectedObjects found;
  const at::Tensor counted = Entry(made, "labels");
  const int64_t objects = counted.defined() && counted.dim() == 1 ? counted.size(0) : 0;
  const at::Tensor labels = Shaped(made, "labels", at::kLong, {objects});
  const at::Tensor boxes = Shaped(made, "boxes", at::kFloat, {objects, 4});
  const at::Tensor scores = Shaped(made, "scores", at::kFloat, {objects});
  TORCH_CHECK(boxes.isfinite().all().item<bool>() && scores.isfinite().all().item<bool>(),
              "model.torchscript: forward has returned a box or a score that is not finite");
  TORCH_CHECK(objects == 0 || (labels.min().item<int64_t>() >= 0 && labels.max().item<int64_t>() < classes),
              "model.torchscript: forward has returned a label that is not below model.classes, which is ", classes);
  found.labels.assign(labels.const_data_ptr<int64_t>(), labels.const_data_ptr<int64_t>() + objects);
  found.boxes.assign(boxes.const_data_ptr<float>(), boxes.const_data_ptr<float>() + 4 * objects);
  found.scores.assign(scores.const_data_ptr<float>(), scores.const_data_ptr<float>() + objects);
  // Where there are none to compare with they are not looked at.
  const at::Tensor masks = scene.has_masks ? Entry(made, "masks") : at::Tensor();
  if (masks.defined()) CopyMasks(masks, objects, scene, found);
  return found;
}

}  // namespace

c10::IValue ImagesOf(absl::Span<const images::Scene> scenes, at::Device device) {
  c10::List<at::Tensor> images;
  for (const images::Scene& scene : scenes) {
    images.push_back(Borrowed(scene.pixels, {scene.channels, scene.height, scene.width}, at::kFloat, device));
  }
  return images;
}

c10::IValue ObjectsOf(absl::Span<const images::Scene> scenes, at::Device device) {
  c10::List<c10::Dict<std::string, at::Tensor>> targets;
  for (const images::Scene& scene : scenes) {
    const auto objects = static_cast<int64_t>(scene.objects());
    c10::Dict<std::string, at::Tensor> target;
    target.insert("boxes", Borrowed(scene.boxes, {objects, 4}, at::kFloat, device));
    target.insert("labels", Borrowed(scene.labels, {objects}, at::kLong, device));
    if (scene.has_masks) {
      target.insert("masks", Borrowed(scene.masks, {objects, scene.height, scene.width}, at::kByte, device));
    }
    targets.push_back(std::move(target));
  }
  return targets;
}

c10::IValue LossesIn(const c10::IValue& made) {
  const bool both = made.isTuple() && made.toTupleRef().elements().size() == 2;
  return both ? made.toTupleRef().elements()[0] : made;
}

std::vector<images::DetectedObjects> FoundIn(const c10::IValue& made, absl::Span<const images::Scene> scenes,
                                             uint32_t classes) {
  const bool both = made.isTuple() && made.toTupleRef().elements().size() == 2;
  const c10::IValue list = both ? made.toTupleRef().elements()[1] : made;
  TORCH_CHECK(list.isList(), "model.torchscript: in evaluation forward has returned ", list.tagKind(),
              "; expected is a list of dictionaries, one for each image");
  const auto entries = list.toListRef();
  TORCH_CHECK(entries.size() == scenes.size(), "model.torchscript: in evaluation forward has returned a list of ",
              entries.size(), "; expected are ", scenes.size(), ", one for each image");
  std::vector<images::DetectedObjects> found;
  for (size_t i = 0; i < scenes.size(); ++i) found.push_back(FoundOn(entries[i], scenes[i], classes));
  return found;
}

}  // namespace slackline::worker
