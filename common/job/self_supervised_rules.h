// The rules of the job file about training without labels.
#pragma once

#include <string>

#include "common/job/mistakes.h"
#include "common/job/reader.h"
#include "job.pb.h"

namespace slackline::job_file {

void CheckSelfSupervisedRules(const job::Job& job, const std::string& name, const Origins& origins, Mistakes& mistakes);

}  // namespace slackline::job_file
