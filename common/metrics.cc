#include "common/metrics.h"

#include <exception>
#include <utility>

#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/http_waker.h"

namespace slackline {
namespace {

class PrometheusCounter : public Counter {
 public:
  explicit PrometheusCounter(prometheus::Counter& counter) : counter_(counter) {}
  void Add(double amount) override { counter_.Increment(amount); }
  double value() const override { return counter_.Value(); }

 private:
  prometheus::Counter& counter_;
};

class PrometheusGauge : public Gauge {
 public:
  explicit PrometheusGauge(prometheus::Gauge& gauge) : gauge_(gauge) {}
  void Set(double value) override { gauge_.Set(value); }
  double value() const override { return gauge_.Value(); }

 private:
  prometheus::Gauge& gauge_;
};

class PrometheusHistogram : public Histogram {
 public:
  explicit PrometheusHistogram(prometheus::Histogram& histogram) : histogram_(histogram) {}
  void Observe(double value) override { histogram_.Observe(value); }

 private:
  prometheus::Histogram& histogram_;
};

// host:port as the HTTP server wants it; IPv6 addresses go into brackets.
std::string Endpoint(const std::string& address, uint16_t port) {
  const bool bare_ipv6 = absl::StrContains(address, ':') && !absl::StartsWith(address, "[");
  return bare_ipv6 ? absl::StrCat("[", address, "]:", port) : absl::StrCat(address, ":", port);
}

}  // namespace

struct Metrics::Impl {
  explicit Impl(Labels common) : common(std::move(common)) {}

  ~Impl() {
    if (exposer == nullptr) return;
    const HttpWaker waker(address, port);
    exposer.reset();
  }

  // The wrapper of `series`, made on first use. Two calls with the same name and labels get the same series from
  // the registry, hence the same wrapper.
  template <typename Interface, typename Wrapper, typename Series>
  Interface& Wrap(std::map<Series*, std::unique_ptr<Interface>>& wrappers, Series& series) {
    std::unique_ptr<Interface>& wrapper = wrappers[&series];
    if (wrapper == nullptr) wrapper = std::make_unique<Wrapper>(series);
    return *wrapper;
  }

  const Labels common;
  const std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  absl::Mutex mutex;
  std::map<prometheus::Counter*, std::unique_ptr<Counter>> counters ABSL_GUARDED_BY(mutex);
  std::map<prometheus::Gauge*, std::unique_ptr<Gauge>> gauges ABSL_GUARDED_BY(mutex);
  std::map<prometheus::Histogram*, std::unique_ptr<Histogram>> histograms ABSL_GUARDED_BY(mutex);
  // Last: its threads read the registry.
  std::unique_ptr<prometheus::Exposer> exposer ABSL_GUARDED_BY(mutex);
  std::string address ABSL_GUARDED_BY(mutex);
  uint16_t port ABSL_GUARDED_BY(mutex) = 0;
};

Metrics::Metrics(Labels common) : impl_(std::make_unique<Impl>(std::move(common))) {}
Metrics::~Metrics() = default;

Counter& Metrics::counter(const std::string& name, const std::string& help, const Labels& labels) {
  absl::MutexLock lock(&impl_->mutex);
  auto& family = prometheus::BuildCounter().Name(name).Help(help).Labels(impl_->common).Register(*impl_->registry);
  return impl_->Wrap<Counter, PrometheusCounter>(impl_->counters, family.Add(labels));
}

Gauge& Metrics::gauge(const std::string& name, const std::string& help, const Labels& labels) {
  absl::MutexLock lock(&impl_->mutex);
  auto& family = prometheus::BuildGauge().Name(name).Help(help).Labels(impl_->common).Register(*impl_->registry);
  return impl_->Wrap<Gauge, PrometheusGauge>(impl_->gauges, family.Add(labels));
}

Histogram& Metrics::histogram(const std::string& name, const std::string& help, const std::vector<double>& bounds,
                              const Labels& labels) {
  absl::MutexLock lock(&impl_->mutex);
  auto& family = prometheus::BuildHistogram().Name(name).Help(help).Labels(impl_->common).Register(*impl_->registry);
  return impl_->Wrap<Histogram, PrometheusHistogram>(impl_->histograms, family.Add(labels, bounds));
}

absl::StatusOr<uint16_t> Metrics::Serve(const std::string& address, uint16_t port) {
  const std::string endpoint = Endpoint(address, port);
  absl::MutexLock lock(&impl_->mutex);
  if (impl_->exposer != nullptr) return absl::FailedPreconditionError("metrics are being served already");
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(endpoint, /*num_threads=*/1);
    exposer->RegisterCollectable(impl_->registry);
    const std::vector<int> ports = exposer->GetListeningPorts();
    if (ports.empty()) return absl::UnavailableError(absl::StrCat("cannot serve metrics on ", endpoint));
    impl_->exposer = std::move(exposer);
    impl_->address = address;
    impl_->port = static_cast<uint16_t>(ports.front());
    return impl_->port;
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("cannot serve metrics on ", endpoint, ": ", error.what()));
  }
}

}  // namespace slackline
