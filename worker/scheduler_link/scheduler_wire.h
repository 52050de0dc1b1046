// Converts the worker's own types to and from the messages of the scheduler.
#pragma once

#include <string>
#include <vector>

#include "scheduler.pb.h"
#include "worker/scheduler_link/scheduler_link.h"

namespace slackline::worker {

// `before`: this process's membership in its life before; of no worker if it is the first one.
wire::RegisterWorkerRequest MakeRegistration(const SchedulerLink::Options& options, uint32_t pid,
                                             const WorkerMembership& before);
wire::WorkerProgress ToWire(const WorkerMembership& life, const StepTotals& progress);
void SetEnergy(const power::EnergyTotals& totals, absl::Time now, wire::WorkerProgress& out);
wire::HeartbeatRequest MakeHeartbeat(const WorkerMembership& life, const StepTotals& progress);
// The last heartbeat of a worker that leaves. `trained`: see SchedulerLink::Leave().
wire::HeartbeatRequest MakeGoodbye(const WorkerMembership& life, const StepTotals& progress, const std::string& reason,
                                   const RangePart& trained);
wire::GetShardMapRequest MakeMapRequest(JobId job);
wire::NextTaskRequest MakeTaskRequest(const WorkerMembership& life, const StepTotals& progress, RangeId range_done,
                                      double samples_per_second);
wire::LeasePartsRequest MakePartsRequest(const WorkerMembership& life, const StreamFacts& stream, uint32_t wanted,
                                         const std::vector<PartPosition>& reached);
void AddPositions(const std::vector<PartPosition>& positions,
                  google::protobuf::RepeatedPtrField<wire::PartPosition>& out);
wire::EvaluationReport ToWire(const EvaluationResult& result);
wire::EvaluationReport ToWire(const WorkerMembership& life, const EvaluationResult& result);

//   kInternal  the kind of task is not known here
absl::StatusOr<Work> FromWire(const wire::NextTaskReply& reply);
ShardMap FromWire(const wire::GetShardMapReply& reply);
std::vector<PartLease> FromWire(const wire::LeasePartsReply& reply);

}  // namespace slackline::worker
