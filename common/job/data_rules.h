// The rules of the job file about training data: where they are, and which copies nodes keep.
#pragma once

#include <string>

#include "common/job/mistakes.h"
#include "common/job/reader.h"
#include "job.pb.h"

namespace slackline::job_file {

// Part of CheckRules(), with the same parameters.
void CheckDataRules(const job::Job& job, const std::string& name, const Origins& origins, Mistakes& mistakes);

}  // namespace slackline::job_file
