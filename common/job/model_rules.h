// Rules about the model: its settings, and what modules and scripts of the user's cannot have.
#pragma once

#include <string>

#include "common/job/mistakes.h"
#include "common/job/reader.h"
#include "job.pb.h"

namespace slackline::job_file {

// Checks the rules and adds what is wrong to `mistakes`, as CheckRules() does.
void CheckModelRules(const job::Job& job, const std::string& name, const Origins& origins, Mistakes& mistakes);

}  // namespace slackline::job_file
