#include "worker/metering.h"

#include <string>
#include <utility>

#include "common/log/logging.h"
#include "common/power/meter_watch.h"
#include "common/power/node_series.h"
#include "common/process/host_name.h"
#include "worker/cuda/gpus.h"

namespace slackline::worker {
namespace {

power::GpuChoice ChoiceOf(WorkerConfig::Metering::Gpus gpus, const std::vector<Device>& devices) {
  if (gpus == WorkerConfig::Metering::Gpus::kAll) return std::nullopt;
  std::vector<std::string> chosen;
  if (gpus == WorkerConfig::Metering::Gpus::kNone) return chosen;
  for (const std::string& address : gpu::PciAddresses(devices)) chosen.push_back(power::PciAddress(address));
  return chosen;
}

}  // namespace

std::unique_ptr<power::EnergySampler> StartMetering(const WorkerConfig::Metering& metering,
                                                    const std::vector<Device>& devices, slackline::Metrics& metrics) {
  if (!metering.on) return nullptr;
  power::MeterOptions options = metering.options;
  options.gpus = ChoiceOf(metering.gpus, devices);
  power::MetersFound found = power::FindMeters(options);
  for (const std::string& complaint : found.complaints) log::Warning("energy: ", complaint);
  if (found.meters.empty()) {
    if (found.complaints.empty())
      log::Info("energy: not metered, because this machine has no meter that this process may read");
    return nullptr;
  }
  // Both kept by the function.
  auto series = std::make_shared<power::NodeSeries>(metrics, HostName());
  auto watch = std::make_shared<power::MeterWatch>();
  return std::make_unique<power::EnergySampler>(std::move(found.meters), metering.every,
                                                [series, watch](const power::EnergyTotals& totals) {
                                                  series->Publish(totals.devices);
                                                  for (const std::string& complaint : watch->Look(totals))
                                                    log::Warning("energy: ", complaint);
                                                });
}

}  // namespace slackline::worker
