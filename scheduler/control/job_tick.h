// Deadlines and intervals of a job.
#pragma once

#include "scheduler/control/job_course.h"
#include "scheduler/control/running_job.h"

namespace slackline::scheduler {

// Finds members that are silent, work that is late, and whatever is over. Call every T/2 or more often.
void TickJob(RunningJob& job, JobCourse& course);

}  // namespace slackline::scheduler
