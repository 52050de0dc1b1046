// The rules of the job file about workers and their devices.
#pragma once

#include <string>

#include "common/job/mistakes.h"
#include "common/job/reader.h"
#include "job.pb.h"

namespace slackline::job_file {

// Part of CheckRules(), with the same parameters.
void CheckWorkerRules(const job::Job& job, const std::string& name, const Origins& origins, Mistakes& mistakes);

}  // namespace slackline::job_file
