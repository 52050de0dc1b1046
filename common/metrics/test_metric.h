// The metric of a job's evaluations: the share of correctly classified images or, for object detection, COCO's mean
// average precision. Names are given as in summary.json (test_metric) and as people read them.
#pragma once

#include "absl/strings/string_view.h"
#include "common/job/data_formats.h"
#include "common/job/job_kinds.h"
#include "job.pb.h"

namespace slackline {

inline constexpr absl::string_view kAccuracyMetric = "accuracy";
inline constexpr absl::string_view kMapMetric = "map";

// Returns whether the job detects objects. Scripts bring their own data and measure accuracies.
inline bool FindsObjects(const job::Job& job) {
  return job_file::Takes(job.data().format(), job_file::kObjects) && !RunsScripts(job);
}

// Returns the name for people. An empty text, from a scheduler of an earlier version, means accuracy.
inline absl::string_view NameOfMetric(absl::string_view metric) { return metric == kMapMetric ? "mAP" : "accuracy"; }

}  // namespace slackline
