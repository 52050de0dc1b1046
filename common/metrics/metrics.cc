#include "common/metrics/metrics.h"

#include <utility>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

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

}  // namespace

struct Metrics::Impl {
  explicit Impl(Labels common) : common(std::move(common)) {}

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
  absl::Mutex refresh_mutex;
  std::vector<std::function<void()>> refresh ABSL_GUARDED_BY(refresh_mutex);
  // Its own: the server is destroyed under the other one, and waits for handlers.
  absl::Mutex missing_mutex;
  std::string missing ABSL_GUARDED_BY(missing_mutex) = "starts";
  // Last: its threads read the others.
  std::unique_ptr<HttpServer> server ABSL_GUARDED_BY(mutex);
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

void Metrics::RemoveGauge(const std::string& name, const Labels& labels) {
  absl::MutexLock lock(&impl_->mutex);
  auto& family = prometheus::BuildGauge().Name(name).Labels(impl_->common).Register(*impl_->registry);
  prometheus::Gauge& gauge = family.Add(labels);
  impl_->gauges.erase(&gauge);
  family.Remove(&gauge);
}

Histogram& Metrics::histogram(const std::string& name, const std::string& help, const std::vector<double>& bounds,
                              const Labels& labels) {
  absl::MutexLock lock(&impl_->mutex);
  auto& family = prometheus::BuildHistogram().Name(name).Help(help).Labels(impl_->common).Register(*impl_->registry);
  return impl_->Wrap<Histogram, PrometheusHistogram>(impl_->histograms, family.Add(labels, bounds));
}

void Metrics::BeforeText(std::function<void()> refresh) {
  absl::MutexLock lock(&impl_->refresh_mutex);
  impl_->refresh.push_back(std::move(refresh));
}

std::string Metrics::Text() const {
  {
    absl::MutexLock lock(&impl_->refresh_mutex);
    for (const std::function<void()>& refresh : impl_->refresh) refresh();
  }
  return prometheus::TextSerializer().Serialize(impl_->registry->Collect());
}

void Metrics::SetMissing(const std::string& what) {
  absl::MutexLock lock(&impl_->missing_mutex);
  impl_->missing = what;
}

absl::StatusOr<uint16_t> Metrics::Serve(HttpServer::Options options) {
  options.handlers["/metrics"] = [this](const HttpRequest&) {
    return HttpResponse{.type = "text/plain; version=0.0.4; charset=utf-8", .body = Text()};
  };
  // A process that answers lives.
  options.handlers["/healthz"] = [](const HttpRequest&) { return HttpResponse{.body = "ok\n"}; };
  options.handlers["/readyz"] = [impl = impl_.get()](const HttpRequest&) {
    absl::MutexLock lock(&impl->missing_mutex);
    if (impl->missing.empty()) return HttpResponse{.body = "ok\n"};
    return HttpResponse{.code = 503, .body = impl->missing + "\n"};
  };
  absl::MutexLock lock(&impl_->mutex);
  if (impl_->server != nullptr) return absl::FailedPreconditionError("metrics are being served already");
  absl::StatusOr<std::unique_ptr<HttpServer>> server = HttpServer::Start(std::move(options));
  if (!server.ok()) return server.status();
  impl_->server = *std::move(server);
  return impl_->server->port();
}

}  // namespace slackline
