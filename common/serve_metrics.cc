#include "common/serve_metrics.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging.h"

namespace slackline {

absl::StatusOr<std::string> ServeMetrics(const job::Network& network, Metrics& metrics,
                                         std::map<std::string, HttpServer::Handler> pages, int threads) {
  if (!network.metrics()) return "";
  const absl::StatusOr<uint16_t> port =
      metrics.Serve(network.listen(), static_cast<uint16_t>(network.metrics_port()), std::move(pages), threads);
  if (!port.ok()) return port.status();
  const std::string address =
      absl::StrCat(network.advertise().empty() ? network.listen() : network.advertise(), ":", *port);
  log::Info("metrics at http://", address, "/metrics");
  return address;
}

}  // namespace slackline
