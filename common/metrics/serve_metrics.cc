#include "common/metrics/serve_metrics.h"

#include "absl/strings/str_cat.h"
#include "common/log/logging.h"
#include "common/metrics/process_metrics.h"
#include "common/network/ports.h"

namespace slackline {
namespace {

absl::StatusOr<uint16_t> Listen(const job::Network& network, Metrics& metrics,
                                const std::map<std::string, HttpServer::Handler>& pages, int threads) {
  const auto serve = [&](uint16_t port) {
    HttpServer::Options options;
    options.address = network.listen();
    options.port = port;
    options.threads = threads;
    options.handlers = pages;
    return metrics.Serve(std::move(options));
  };
  if (network.metrics_port() != 0 || network.ports().empty()) {
    return serve(static_cast<uint16_t>(network.metrics_port()));
  }
  const absl::StatusOr<network::PortRange> range = network::ParsePortRange(network.ports());
  if (!range.ok()) return range.status();
  return network::TakePort(network.listen(), *range, network::AnyFirst(),
                           [&](uint16_t port) { return serve(port).status(); });
}

}  // namespace

absl::StatusOr<std::string> ServeMetrics(const job::Network& network, Metrics& metrics,
                                         std::map<std::string, HttpServer::Handler> pages, int threads) {
  if (!network.metrics()) return "";
  AddProcessSeries(metrics);
  const absl::StatusOr<uint16_t> port = Listen(network, metrics, pages, threads);
  if (!port.ok()) return port.status();
  const std::string address =
      absl::StrCat(network.advertise().empty() ? network.listen() : network.advertise(), ":", *port);
  log::Info("metrics at http://", address, "/metrics");
  return address;
}

}  // namespace slackline
