// Rules that no single field can express: combinations of settings that contradict each other.
#pragma once

#include "common/job/mistakes.h"
#include "common/job/reader.h"
#include "job.pb.h"

namespace slackline::job_file {

// Adds the contradictions in `job` to `mistakes`. A setting that has no effect with the others is refused unless it has
// its default value, so that a job with every default written out is valid.
//   name  the file's name, for fields that nobody set
void CheckRules(const job::Job& job, const std::string& name, const Origins& origins, Mistakes& mistakes);

}  // namespace slackline::job_file
