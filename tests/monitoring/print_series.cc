// Prints what a scheduler, a server and a worker serve at /metrics, each after a line "# ROOM NAME"; for
// scripts/make_metrics_reference.
#include <iostream>
#include <string>

#include "common/metrics/metrics.h"
#include "common/metrics/process_metrics.h"
#include "common/power/node_series.h"
#include "ps/base/service_metrics.h"
#include "scheduler/service/scheduler_metrics.h"
#include "worker/life/trainer_metrics.h"

namespace slackline {
namespace {

void Print(const std::string& room, const Metrics& metrics) {
  std::cout << "# ROOM " << room << '\n' << metrics.Text();
}

void PrintProcess() {
  Metrics metrics(ProcessLabels("job", "name", "role"));
  AddProcessSeries(metrics);
  Print("process", metrics);
}

void PrintScheduler() {
  Metrics metrics;
  scheduler::SchedulerMetrics series(metrics);
  // Series that begin with an accuracy, or with a script's own figure.
  scheduler::Report report;
  report.accuracy = report.test_accuracy = 1;
  report.train_values["name"] = report.test_values["name"] = 1;
  series.Publish(report);
  // Those that come with a member.
  scheduler::MembersView members;
  members.clocks["name"] = 1;
  series.Publish(members);
  series.SetJob({}, "run");
  Print("scheduler", metrics);
}

void PrintServer() {
  Metrics metrics;
  ps::ServiceMetrics series(metrics);
  series.Awaited("name", absl::Seconds(1));
  Print("server", metrics);
}

void PrintNode() {
  Metrics metrics;
  power::NodeSeries series(metrics, "name");
  power::DeviceTotals gpu;
  gpu.device = "name";
  gpu.reading.gpu_ratio = gpu.reading.gpu_memory_bytes = gpu.reading.celsius = 1;
  series.Publish({gpu});
  Print("node", metrics);
}

void PrintWorker() {
  Metrics metrics;
  worker::TrainerMetrics series(metrics);
  series.RecordEvaluation(1, absl::Seconds(1));
  Print("worker", metrics);
}

}  // namespace
}  // namespace slackline

int main() {
  slackline::PrintProcess();
  slackline::PrintScheduler();
  slackline::PrintServer();
  slackline::PrintWorker();
  slackline::PrintNode();
}
