// Prometheus metrics of one process, and the endpoint that serves them.
//
// Names are slackline_ROOM_WHAT_UNIT; counters end in _total. Series are created at start, so that a dashboard sees
// zeros instead of gaps; accuracies, which a job may lack, come with the first one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/http/http_server.h"

namespace slackline {

// A number that only rises. Thread-safety: safe.
class Counter {
 public:
  virtual ~Counter() = default;
  virtual void Add(double amount = 1) = 0;
  virtual double value() const = 0;
};

// A number that rises and falls. Thread-safety: safe.
class Gauge {
 public:
  virtual ~Gauge() = default;
  virtual void Set(double value) = 0;
  virtual double value() const = 0;
};

// A distribution over fixed buckets. Thread-safety: safe.
class Histogram {
 public:
  virtual ~Histogram() = default;
  virtual void Observe(double value) = 0;
};

// Thread-safety: safe.
// Ownership:     owns the objects that it returns; references to them live as long as it does.
// Threads:       the threads of the HTTP endpoint, once Serve() was called.
class Metrics {
 public:
  using Labels = std::map<std::string, std::string>;

  // Every series gets the labels `common` (job, process).
  explicit Metrics(Labels common = {});
  ~Metrics();

  // Returns the counter, gauge or histogram. Equal name and labels give the same object.
  Counter& counter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge& gauge(const std::string& name, const std::string& help, const Labels& labels = {});
  Histogram& histogram(const std::string& name, const std::string& help, const std::vector<double>& bounds,
                       const Labels& labels = {});

  // Removes the series and invalidates references to it. Does nothing if the series does not exist.
  void RemoveGauge(const std::string& name, const Labels& labels);

  // Registers `refresh`, which sets values that are only looked up on request. `refresh` is called before each Text(),
  // on its thread, as long as this object lives. It must not block for long, nor register another.
  void BeforeText(std::function<void()> refresh);

  // Returns all series, in Prometheus' text format.
  std::string Text() const;

  // Sets what the process waits for before it can be used, as /readyz reports. Empty: the process is ready. Until the
  // first call the text is "starts".
  void SetMissing(const std::string& what);

  // Serves /metrics, /healthz, /readyz and what `options` has. Returns the port. Handlers are called on the server's
  // threads until this object is destroyed.
  //   kUnavailable         the port is taken
  //   kFailedPrecondition  Serve() was already called
  absl::StatusOr<uint16_t> Serve(HttpServer::Options options);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slackline
