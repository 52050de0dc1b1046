// The metric of a job's evaluations: the share of correctly classified images or, for object detection, COCO's mean
// average precision. Names are given as in summary.json (test_metric) and as people read them.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "common/job/data_formats.h"
#include "common/job/job_kinds.h"
#include "common/job/metric_names.h"
#include "job.pb.h"

namespace slackline {

inline constexpr absl::string_view kMapMetric = "map";

// Returns whether the job detects objects. Scripts bring their own data and measure accuracies.
inline bool FindsObjects(const job::Job& job) {
  return job_file::Takes(job.data().format(), job_file::kObjects) && !RunsScripts(job);
}

// Returns the name for people. An empty text, from a scheduler of an earlier version, means accuracy.
inline absl::string_view NameOfMetric(absl::string_view metric) { return metric == kMapMetric ? "mAP" : "accuracy"; }

// Returns the job's metric; with `kind`, the one that such a setting names.
inline ComparedMetric MetricOf(const job::Job& job) {
  const job::ComparedMetric& metric = job.training().metric();
  return {.name = metric.name(), .lower_is_better = metric.better() == job::ComparedMetric::LOWER};
}
inline ComparedMetric MetricOf(const job::Job& job, job::Metric::Kind kind) {
  if (kind == job::Metric::TEST_LOSS) return {.name = std::string(kLossMetric), .lower_is_better = true};
  return MetricOf(job);
}

}  // namespace slackline
