#include "worker/settings/container.h"

#include <algorithm>
#include <optional>
#include <string>

#include "common/process/device.h"

namespace slackline::worker {

job::Job InContainer(const job::Job& job, uint32_t group) {
  job::Job seen = job;
  if (group >= static_cast<uint32_t>(job.worker().groups_size())) return seen;
  Device next{.kind = Device::Kind::kCuda, .index = 0};
  for (std::string& name : *seen.mutable_worker()->mutable_groups(static_cast<int>(group))->mutable_devices()) {
    const std::optional<Device> device = ParseDevice(name);
    if (!device || device->kind != Device::Kind::kCuda) continue;
    name = ToString(next);
    ++next.index;
  }
  return seen;
}

void ShareProcessors(uint32_t cpus, WorkerConfig& config) {
  if (!config.threads_by_cores) return;
  config.compute_threads = std::max(1u, cpus / std::max(1u, static_cast<uint32_t>(config.devices.size())));
}

}  // namespace slackline::worker
