// The state that outlives the scheduler: saved as a whole now and then, and gone on from when it is started again, or
// when a run continues from a checkpoint.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "checkpoint.pb.h"
#include "scheduler/control/job_course.h"
#include "scheduler/control/running_job.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler {

// Number that says how the state is written.
inline constexpr uint32_t kStateFormat = 1;

// Returns the state that a restarted scheduler needs to continue from here. `wall_time`: infinite past if it does not
// matter.
state::Scheduler SaveState(const RunningJob& job, absl::Time wall_time);
// Continues from `state`, as Controller::Restore() says. `observer`: gets the outcomes of the calls to servers.
absl::Status RestoreState(const state::Scheduler& state, absl::Time wall_time, RunningJob& job, JobCourse& course,
                          ServerObserver& observer);
// Continues from a checkpoint, as Controller::GoOnFrom() says.
absl::Status GoOnFromCheckpoint(const checkpoint::Manifest& manifest, const std::string& folder, RunningJob& job,
                                JobCourse& course);

}  // namespace slackline::scheduler
