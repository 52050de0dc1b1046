// The HTTP endpoint of a process of a job, as the job file has it.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "common/metrics.h"
#include "job.pb.h"

namespace slackline {

// Serves `metrics`, with those of the process, and `pages`, with so many threads, as network.metrics, listen,
// metrics_port and ports say (the interface is settled: network::OnThisMachine()), logs where, and returns host:port
// for others (network.advertise, else the address listened on); empty where the job wants none.
//   kUnavailable        the port is taken
//   kResourceExhausted  all of network.ports are
absl::StatusOr<std::string> ServeMetrics(const job::Network& network, Metrics& metrics,
                                         std::map<std::string, HttpServer::Handler> pages = {}, int threads = 4);

}  // namespace slackline
