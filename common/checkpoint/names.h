// Names of a checkpoint's folder:
//   "checkpoint-000012"              when it is whole
//   "checkpoint-000012.JOB.partial"  while it is written; JOB keeps it apart from the remains of another job
//   "checkpoint-000012.undone"       after its run went on from an earlier checkpoint
#pragma once

#include <cstdint>
#include <string>

#include "common/base/ids.h"

namespace slackline::checkpoint {

std::string NameOf(uint64_t number);
std::string PartialNameOf(uint64_t number, JobId job);

}  // namespace slackline::checkpoint
