// Figures of a job: what its members report, how far training is, evaluations, and answered pushes that were lost.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "scheduler.pb.h"
#include "scheduler/control/running_job.h"

namespace slackline::scheduler {

// Notes a sign of life of a worker, and its progress (null for none).
//   kFailedPrecondition  the worker is no longer a member
absl::Status HearWorker(RunningJob& job, const Holder& holder, const wire::WorkerProgress* progress, absl::Time now);
// Notes a server's progress: how fast its versions rise, and when it begins and ceases to fail to write snapshots.
void HearServer(RunningJob& job, ServerId server, const wire::ServerProgress& progress, absl::Time now);
// Does what is due at what is trained now. Reports epochs that are over; of many short ones, only one now and then.
void FollowTraining(RunningJob& job, absl::Time now);
void AddReport(RunningJob& job, absl::Time now);
// Records an evaluation, and decides whether it is the best so far and whether training is to end.
void NoteEvaluation(RunningJob& job, const wire::EvaluationReport& report, const EvaluationSummary& begun,
                    const std::string& by);
// Records a test accuracy that no worker was asked for, of the present weights, with `samples_applied` samples applied.
void NoteObserved(RunningJob& job, wire::EvaluationReport report, uint64_t samples_applied);
// Notes that this worker makes no more steps in this life, and reports what it will not report itself.
void TrainsNoMore(RunningJob& job, const Holder& holder);
// Notes what a server that came back has lost.
void NoteRestored(RunningJob& job, ServerId server, const wire::InstallShardsReply& reply);

}  // namespace slackline::scheduler
