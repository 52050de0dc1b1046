// What evaluations of a job measure: the share of images that are classified right, or, of objects that are found,
// COCO's mean average precision. As summary.json has it (test_metric), and as people read it.
#pragma once

#include "absl/strings/string_view.h"
#include "job.pb.h"

namespace slackline {

inline constexpr absl::string_view kAccuracyMetric = "accuracy";
inline constexpr absl::string_view kMapMetric = "map";

// Scripts bring data of their own, and measure accuracies.
inline bool FindsObjects(const job::Job& job) {
  return job.data().format() == job::Data::COCO && job.model().kind() != job::Model::EXTERNAL;
}

// Empty text, of a scheduler of an earlier version, is an accuracy.
inline absl::string_view NameOfMetric(absl::string_view metric) { return metric == kMapMetric ? "mAP" : "accuracy"; }

}  // namespace slackline
