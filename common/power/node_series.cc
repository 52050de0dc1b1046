#include "common/power/node_series.h"

#include <optional>

namespace slackline::power {

void NodeSeries::Publish(absl::Span<const DeviceTotals> devices) {
  for (const DeviceTotals& device : devices) {
    const Metrics::Labels labels = {{"node", node_}, {"device", device.device}};
    const auto set = [&](const char* name, const char* help, const std::optional<double>& value) {
      if (value) metrics_.gauge(name, help, labels).Set(*value);
    };
    Counter& energy = metrics_.counter("slackline_node_energy_joules_total",
                                       "Energy that a device of the node has taken since this process began", labels);
    if (const double grown = device.joules.total() - energy.value(); grown > 0) energy.Add(grown);
    set("slackline_node_power_watts", "Power of a device of the node, lately", device.watts);
    set("slackline_node_gpu_utilisation_ratio", "Share of time in which a GPU of the node computed, lately",
        device.reading.gpu_ratio);
    set("slackline_node_gpu_memory_bytes", "Memory in use of a GPU of the node, by whomever",
        device.reading.gpu_memory_bytes);
    set("slackline_node_temperature_celsius", "Temperature of a device of the node", device.reading.celsius);
  }
}

}  // namespace slackline::power
