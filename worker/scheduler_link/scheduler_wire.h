// Converts the worker's own types to and from the messages of the scheduler.
#pragma once

#include "scheduler.grpc.pb.h"
#include "worker/scheduler_link/scheduler_link.h"

namespace slackline::worker {

wire::RegisterWorkerRequest MakeRegistration(const SchedulerLink::Options& options, uint32_t pid);
wire::WorkerProgress ToWire(const Membership& life, const Progress& progress);
void SetEnergy(const power::EnergyTotals& totals, wire::WorkerProgress& out);
wire::HeartbeatRequest MakeHeartbeat(const Membership& life, const Progress& progress);
wire::EvaluationReport ToWire(const EvaluationResult& result);

//   kInternal  the kind of task is not known here
absl::StatusOr<Work> FromWire(const wire::NextTaskReply& reply);
ShardMap FromWire(const wire::GetShardMapReply& reply);

}  // namespace slackline::worker
