// What a run that goes on must have in common with what it was.
#pragma once

#include "absl/status/status.h"
#include "job.pb.h"

namespace slackline::cli {

// The weights of a checkpoint are those of one model. `before`: the job that it was made in; `after`: the one to go on
// with. Only what a worker would say after everything has started: where the data have other images, it still does.
//   kInvalidArgument  every field of `model` that differs, one a line
absl::Status CheckModelKept(const job::Job& before, const job::Job& after);

}  // namespace slackline::cli
