// The HTTP endpoint of a process of a job, as configured in the job file.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "common/metrics/metrics.h"
#include "job.pb.h"

namespace slackline {

// Serves `metrics`, with the metrics of the process, and `pages` on `threads` threads. network.metrics, listen,
// metrics_port and ports decide the address (the interface is already resolved: network::OnThisMachine()). Logs the
// address, and returns host:port for others (network.advertise, otherwise the address listened on); returns an empty
// text if the job wants no endpoint.
//   kUnavailable        the port is taken
//   kResourceExhausted  all of network.ports are taken
absl::StatusOr<std::string> ServeMetrics(const job::Network& network, Metrics& metrics,
                                         std::map<std::string, HttpServer::Handler> pages = {}, int threads = 4);

}  // namespace slackline
