// Small networks and batches for the tests of the model and the local group.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "worker/model/model.h"

namespace slackline::worker {

inline ModelSpec TinyMlp() {
  return {.kind = ModelKind::kMlp, .hidden = {6}, .filters = {}, .classes = 3, .height = 4, .width = 4};
}

inline ModelSpec TinyCnn(bool batch_norm) {
  return {.kind = ModelKind::kCnn,
          .hidden = {5},
          .filters = {2, 3},
          .batch_norm = batch_norm,
          .classes = 3,
          .height = 8,
          .width = 8};
}

// Returns a ResNet-18 for tiny images; the network itself is not tiny, with 11 million parameters.
inline ModelSpec TinyImagesForResnet() {
  return {.kind = ModelKind::kResnet18, .hidden = {}, .filters = {}, .classes = 3, .height = 8, .width = 8};
}

// Returns images whose label shows: the pixels of one third are larger.
inline images::Batch TinyBatch(const ModelSpec& spec, size_t size) {
  images::Batch batch;
  uint32_t state = 9;
  const size_t pixels = size_t{spec.channels} * spec.height * spec.width;
  for (size_t i = 0; i < size; ++i) {
    const int64_t label = static_cast<int64_t>(i * 5 % spec.classes);
    batch.labels.push_back(label);
    for (size_t p = 0; p < pixels; ++p) {
      state = state * 1664525 + 1013904223;
      const float noise = static_cast<float>(state >> 8) / (1 << 24) - 0.5f;
      batch.images.push_back(noise + (static_cast<int64_t>(p * spec.classes / pixels) == label ? 1.0f : 0.0f));
    }
  }
  return batch;
}

inline BatchView View(const images::Batch& batch) { return {.images = batch.images, .labels = batch.labels}; }

// Makes a model that computes on one thread. These networks are too small to share, and OpenMP's threads spin while
// they wait, which on a busy machine makes a test a hundred times slower.
inline std::unique_ptr<Model> MakeModel(const ModelSpec& spec, uint64_t seed = 1) {
  SetComputeThreads(1);
  absl::StatusOr<std::unique_ptr<Model>> model = Model::Create(spec, seed);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

inline std::vector<float> Copy(absl::Span<const float> values) { return {values.begin(), values.end()}; }

// Returns the part of `flat`, which is parameters() or push(), in which tensor `name` lies.
inline absl::Span<float> Find(const Model& model, absl::Span<float> flat, const std::string& name) {
  for (const TensorInfo& tensor : model.tensors()) {
    if (tensor.name == name) return flat.subspan(tensor.offset, tensor.elements());
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

}  // namespace slackline::worker
