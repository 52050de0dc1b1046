// Splits a batch among the devices of a group.
#pragma once

#include <algorithm>
#include <cstddef>

#include "worker/model/model.h"

namespace slackline::worker {

// Returns a device's proportional part of a batch. If the division leaves a remainder, the first parts are one sample
// larger; if the batch is smaller than the group, the last parts are empty. Parts are views of the batch's memory:
// nothing is copied. A part has all views of its samples.
// Requires: the batch has samples, and is no part.
inline BatchView PartOf(const BatchView& batch, size_t device, size_t devices) {
  const size_t samples = batch.labels.size(), even = samples / devices, longer = samples % devices;
  const size_t begin = device * even + std::min(device, longer), size = even + (device < longer ? 1 : 0);
  const size_t one_view = batch.images.size() / batch.views, pixels = one_view / samples;
  const size_t views_before = size > 0 ? batch.views - 1 : 0;
  return {.images = batch.images.subspan(begin * pixels, views_before * one_view + size * pixels),
          .labels = batch.labels.subspan(begin, size),
          .noise = batch.noise + begin,
          .loss_scale = batch.loss_scale,
          .share = batch.share,
          .other_labels = batch.other_labels.empty() ? batch.other_labels : batch.other_labels.subspan(begin, size),
          .scenes = batch.scenes.empty() ? batch.scenes : batch.scenes.subspan(begin, size),
          .views = batch.views,
          .view_stride = batch.views > 1 && size < samples ? one_view : 0};
}

}  // namespace slackline::worker
