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

power::MetersFound Find(const WorkerConfig::Metering& metering, const std::vector<Device>& devices) {
  power::MeterOptions options = metering.options;
  options.gpus = ChoiceOf(metering.gpus, devices);
  return power::FindMeters(options);
}

}  // namespace

power::IdlePower MeasureIdle(const WorkerConfig::Metering& metering, const std::vector<Device>& devices) {
  if (!metering.on || metering.idle == absl::ZeroDuration()) return {};
  // StartMetering() tells the complaints.
  std::vector<std::unique_ptr<power::PowerMeter>> meters = Find(metering, devices).meters;
  if (meters.empty()) return {};
  log::Info("energy: meters the idle node for ", absl::FormatDuration(metering.idle), " (power.idle_s)");
  power::IdlePower idle = power::MeasureIdle(std::move(meters), metering.every, metering.idle);
  for (const auto& [device, watts] : idle.watts) log::Info("energy: ", device, " idles at ", watts, " W");
  return idle;
}

std::unique_ptr<power::EnergySampler> StartMetering(const WorkerConfig::Metering& metering,
                                                    const std::vector<Device>& devices, slackline::Metrics& metrics,
                                                    power::IdlePower idle) {
  if (!metering.on) return nullptr;
  power::MetersFound found = Find(metering, devices);
  for (const std::string& complaint : found.complaints) log::Warning("energy: ", complaint);
  if (found.meters.empty()) {
    if (found.complaints.empty())
      log::Info("energy: not metered, because this machine has no meter that this process may read");
    return nullptr;
  }
  // Both kept by the function.
  auto series = std::make_shared<power::NodeSeries>(metrics, HostName());
  auto watch = std::make_shared<power::MeterWatch>();
  return std::make_unique<power::EnergySampler>(
      std::move(found.meters), metering.every,
      [series, watch](const power::EnergyTotals& totals) {
        series->Publish(totals.devices);
        for (const std::string& complaint : watch->Look(totals)) log::Warning("energy: ", complaint);
      },
      std::move(idle));
}

}  // namespace slackline::worker
