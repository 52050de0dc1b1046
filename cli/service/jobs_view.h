// The jobs of a service for people and programs: table, JSON, and page.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "job_service.pb.h"

namespace slackline::cli {

// Renders a table of at most 100 columns, newest job first.
std::string RenderJobs(const wire::ListJobsReply& jobs, absl::Time now);
// Renders a JSON object. What is not known is null.
std::string JobJson(const wire::ServiceJob& job, absl::Time now);
// Renders a JSON array of such objects.
std::string JobsJson(const wire::ListJobsReply& jobs, absl::Time now);
// Returns the addresses of all processes of running jobs for Prometheus, in the format of its http_sd. Each has the
// labels of the job's own file of targets; `run` is the number of the job, and `owner` is added.
std::string TargetsOf(const wire::ListJobsReply& jobs);
// Renders a page that reloads itself every few seconds.
std::string JobsPage(const wire::ListJobsReply& jobs, absl::Time now);

}  // namespace slackline::cli
