// What the job file's files and folders may be called; whether they are there is another question.
#pragma once

#include "common/job/mistakes.h"
#include "common/job/reader.h"
#include "job.pb.h"

namespace slackline::job_file {

// `name`, `origins` and `mistakes` as CheckRules() has them.
void CheckPathRules(const job::Job& job, const std::string& name, const Origins& origins, Mistakes& mistakes);

}  // namespace slackline::job_file
