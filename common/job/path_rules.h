// Rules about the names of files and folders in a job file. Their existence is not checked here.
#pragma once

#include "common/job/mistakes.h"
#include "common/job/reader.h"
#include "job.pb.h"

namespace slackline::job_file {

// The parameters are those of CheckRules().
void CheckPathRules(const job::Job& job, const std::string& name, const Origins& origins, Mistakes& mistakes);

}  // namespace slackline::job_file
