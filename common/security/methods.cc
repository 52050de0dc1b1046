#include "common/security/methods.h"

namespace slackline::security {
namespace {

constexpr Method kMethods[] = {
    // An operator's stream may only read.
    {"slackline.wire.ParameterServer.Exchange", {Role::kWorker, Role::kOperator}},
    {"slackline.wire.ParameterServer.Replicate", {Role::kServer}},

    {"slackline.wire.ParameterServerControl.InstallShards", {Role::kScheduler}},
    {"slackline.wire.ParameterServerControl.SetMembers", {Role::kScheduler}},
    {"slackline.wire.ParameterServerControl.TakeShards", {Role::kScheduler}},
    {"slackline.wire.ParameterServerControl.BeginCheckpoint", {Role::kScheduler}},
    {"slackline.wire.ParameterServerControl.Stop", {Role::kScheduler}},

    {"slackline.wire.Scheduler.RegisterServer", {Role::kServer}},
    {"slackline.wire.Scheduler.RegisterWorker", {Role::kWorker}},
    // Each for its own kind of member.
    {"slackline.wire.Scheduler.Heartbeat", {Role::kServer, Role::kWorker}},
    {"slackline.wire.Scheduler.FindImages", {Role::kWorker}},
    {"slackline.wire.Scheduler.GetShardMap", {Role::kWorker, Role::kOperator}},
    {"slackline.wire.Scheduler.NextTask", {Role::kWorker}},
    {"slackline.wire.Scheduler.LeaseParts", {Role::kWorker}},
    {"slackline.wire.Scheduler.ReportEvaluation", {Role::kWorker}},
    {"slackline.wire.Scheduler.GetStatus", Roles::All()},
    {"slackline.wire.Scheduler.StopJob", {Role::kOperator}},
    {"slackline.wire.Scheduler.Checkpoint", {Role::kOperator}},
    {"slackline.wire.Scheduler.ChangeServers", {Role::kOperator}},
    {"slackline.wire.Scheduler.ReportExit", {Role::kOperator}},

    {"slackline.wire.JobService.Submit", {Role::kOperator}},
    {"slackline.wire.JobService.ListJobs", {Role::kOperator}},
    {"slackline.wire.JobService.OrderJob", {Role::kOperator}},
    {"slackline.wire.JobService.ReadJobLog", {Role::kOperator}},
};

}  // namespace

absl::Span<const Method> Methods() { return kMethods; }

Roles CallersOf(absl::string_view method) {
  for (const Method& one : kMethods) {
    if (one.name == method) return one.callers;
  }
  return {};
}

}  // namespace slackline::security
