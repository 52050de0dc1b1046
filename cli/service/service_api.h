// The service over HTTP, for programs that have no `slackline` command: cli/service/openapi.yaml describes it.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include "cli/service/job_host.h"
#include "common/http/http_server.h"
#include "job_service.pb.h"

namespace slackline::cli {

// Answers requests for single jobs, and takes orders. Whoever orders or reads a log shows the token of the service's
// folder.
//
// Thread-safety: safe.
// Ownership:     borrows the host.
class ServiceApi {
 public:
  // Largest number of submissions and removals at the same time, each of which occupies a thread of the server.
  static constexpr int kLongOrdersMax = 2;

  struct Options {
    // Folder of the service.
    std::filesystem::path folder;
    // Path of the program `slackline`.
    std::filesystem::path program;
    std::string token;
  };
  ServiceApi(JobHost& host, Options options) : host_(host), options_(std::move(options)) {}

  // Returns whether the caller has the token.
  bool MayOrder(const HttpRequest& request) const;
  // Answers a request of any method.
  HttpResponse Answer(const HttpRequest& request);
  // Ends submissions that are being checked. Later ones are refused.
  void End() { ending_ = true; }

 private:
  // A new job. `slackline submit` checks it, in the job's folder and environment, so that it means the same as there.
  HttpResponse Submit(const HttpRequest& request) const;
  HttpResponse Job(uint64_t id) const;
  HttpResponse Log(uint64_t id, const HttpRequest& request) const;
  HttpResponse Order(uint64_t id, wire::JobOrder order, const HttpRequest& request) const;
  // Answers with `order` unless too many long orders are in progress.
  HttpResponse InTurn(const std::function<HttpResponse()>& order);

  JobHost& host_;
  const Options options_;
  std::atomic<int> long_orders_ = 0;
  std::atomic<bool> ending_ = false;
};

}  // namespace slackline::cli
