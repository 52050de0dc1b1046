// Rules about the model and how it learns: its settings, what modules and scripts of the user's cannot have, images
// with objects (data.format: coco), and training without labels.
#pragma once

#include <string>

#include "common/job/mistakes.h"
#include "common/job/reader.h"
#include "job.pb.h"

namespace slackline::job_file {

// Parts of CheckRules(), with the same parameters.
void CheckModelRules(const job::Job& job, const std::string& name, const Origins& origins, Mistakes& mistakes);
void CheckCocoRules(const job::Job& job, const std::string& name, const Origins& origins, Mistakes& mistakes);
void CheckSelfSupervisedRules(const job::Job& job, const std::string& name, const Origins& origins, Mistakes& mistakes);

}  // namespace slackline::job_file
