// Report at the end of a run, for people: how good the model is, where the results are, and what to try next.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/base/start_text.h"
#include "common/metrics/measured.h"
#include "common/metrics/test_metric.h"
#include "job.pb.h"
#include "scheduler.pb.h"

namespace slackline::cli {

// Renders "mAP 37.00 % (58.20 % at an overlap of 0.5)", and the mAP of masks if there is one. Requires: an evaluation
// of object detection.
std::string RenderPrecision(const wire::EvaluationReport& evaluation);
// Renders the job's metric and the other figures of the test (of object detection: mAP), then precision, recall and F1
// of each class and their means.
std::string RenderEvaluation(const job::Job& job, const wire::EvaluationReport& evaluation);
// Renders the evaluation with the caller's first line.
std::string RenderEvaluation(const wire::EvaluationReport& evaluation, const std::string& first);
// Renders a line with the job's metric in the last evaluation of a GetStatusReply or JobProgress; without one, its
// accuracy, or else its loss. Nothing before the first evaluation.
template <typename Progress>
std::string RenderTest(const Progress& progress) {
  const wire::JobMetric& metric = progress.metric();
  if (metric.has_last() && metric.name() != kAccuracyMetric) {
    return absl::StrCat("test ", FigureText(metric.name(), metric.last()), "\n");
  }
  if (progress.has_test_accuracy()) {
    return absl::StrFormat("test %s %.2f %%\n", NameOfMetric(progress.test_metric()), 100 * progress.test_accuracy());
  }
  return progress.has_test_loss() ? absl::StrFormat("test loss %.4f\n", progress.test_loss()) : "";
}
// Renders energy by phase, power, and energy times delay; "energy: not metered" for null.
std::string RenderEnergy(const wire::EnergyView* energy);
// Lists the result files in `folder`. Reads the folder.
std::string RenderResults(const std::filesystem::path& folder);
// Renders commands that change one thing about this job, ready to paste. `start` is the command that started this run.
std::string RenderNext(const job::Job& job, const StartText& start, const std::filesystem::path& folder);
// Returns the pending changes of servers: servers that may join, that are to leave, and that are dead and so delay the
// others.
std::vector<std::string> PendingServers(const wire::GetStatusReply& status);
// Renders state, progress and a table of the members.
std::string RenderStatus(const wire::GetStatusReply& status);

}  // namespace slackline::cli
