#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/base/complain.h"
#include "cli/base/replace_file.h"
#include "cli/base/sibling.h"
#include "cli/base/signals.h"
#include "cli/commands/service.h"
#include "cli/service/job_host.h"
#include "cli/service/jobs_view.h"
#include "cli/service/queue_limits.h"
#include "cli/service/service_api.h"
#include "cli/service/service_folder.h"
#include "cli/service/service_server.h"
#include "common/base/address.h"
#include "common/http/http_server.h"
#include "common/log/logging.h"
#include "common/metrics/metrics.h"
#include "common/security/files.h"
#include "common/text/counted.h"
#include "common/text/folder_name.h"
#include "common/text/help.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

const HelpText kServiceHelp = {.example = "slackline service start",
                               .text =
                                   "Runs until Ctrl-C. The jobs go on without it, and the next `slackline service "
                                   "start` of the folder finds them. "
                                   "More: slackline help service.",
                               .examples =
                                   "slackline service start --folder /srv/slackline --jobs-max 4\n"
                                   "slackline service start --jobs-max 8 --gpus 0,1,2,3 --memory-max 256GB\n"
                                   "slackline service start --page 127.0.0.1:8080"};

constexpr absl::Duration kTurnEvery = absl::Milliseconds(100);
constexpr absl::Duration kRemoveEvery = absl::Seconds(5);
constexpr uint32_t kEndedOnPage = 200;
constexpr char kLoopback[] = "127.0.0.1:0";

struct ServiceOptions {
  std::string folder = "service";
  std::string listen = kLoopback;
  std::string page = kLoopback;
  QueueLimits limits;
};

// Others would reach jobs with a token that crosses the network in the clear.
std::string NotLoopback(const std::string& address) {
  if (const std::string mistake = AddressMistake(address); !mistake.empty()) return mistake;
  if (IsLoopback(HostOf(address))) return "";
  return absl::StrCat("found ", address, "; allowed are addresses that only this machine reaches, as 127.0.0.1:7000");
}

// A page of the jobs: `render` makes its text, of this type.
HttpServer::Handler PageOf(const JobHost& host, const char* type,
                           const std::function<std::string(const wire::ListJobsReply&)>& render) {
  return [&host, type, render](const HttpRequest& /*request*/) -> HttpResponse {
    wire::ListJobsRequest request;
    request.set_ended_max(kEndedOnPage);
    const absl::StatusOr<wire::ListJobsReply> jobs = host.List(request);
    if (!jobs.ok()) return {.code = 500, .body = absl::StrCat(jobs.status().message(), "\n")};
    return {.type = type, .body = render(*jobs)};
  };
}

// Serves the page, the metrics and the orders over HTTP; returns the address of the page.
absl::StatusOr<std::string> ServePage(const std::string& address, const JobHost& host, const QueueLimits& limits,
                                      ServiceApi& api, Metrics& metrics) {
  metrics.BeforeText([&host, &limits, &metrics] {
    const QueueShare used = host.Used();
    const auto set = [&metrics](const char* name, const char* help, uint64_t value) {
      metrics.gauge(name, help).Set(static_cast<double>(value));
    };
    set("slackline_service_gpus", "GPUs that the service hands out", limits.gpus.size());
    set("slackline_service_gpus_used", "GPUs that jobs have", used.gpus);
    set("slackline_service_memory_max_bytes", "Memory that jobs may ask for together; 0: without limit",
        limits.memory_bytes);
    set("slackline_service_memory_reserved_bytes", "Memory that running jobs have asked for", used.memory_bytes);
    std::map<std::string, size_t> count = host.Count();
    for (const char* const state :
         {"queued", "running", "stopping", "cancelling", "done", "failed", "stopped", "cancelled"}) {
      metrics.gauge("slackline_service_jobs", "Jobs of the service, by state", {{"state", state}})
          .Set(static_cast<double>(count[state]));
    }
  });
  metrics.SetMissing("");
  constexpr char kJson[] = "application/json";
  HttpServer::Options options;
  options.handlers = {
      {"/", PageOf(host, "text/html; charset=utf-8", [](const auto& jobs) { return JobsPage(jobs, absl::Now()); })},
      {"/api/jobs", PageOf(host, kJson, [](const auto& jobs) { return JobsJson(jobs, absl::Now()); })},
      {"/targets", PageOf(host, kJson, TargetsOf)}};
  options.otherwise = [&api](const HttpRequest& request) { return api.Answer(request); };
  options.orders = options.otherwise;
  options.takes_body = [&api](const HttpRequest& request) { return api.MayOrder(request); };
  options.address = HostOf(address);
  options.port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  // A submission occupies a thread while its job is checked.
  options.threads = 4;
  const std::string name = options.address;
  const absl::StatusOr<uint16_t> served = metrics.Serve(std::move(options));
  if (!served.ok()) return served.status();
  return absl::StrCat("http://", name, ":", *served, "/");
}

int StartService(const ServiceOptions& options) {
  if (const std::string mistake = GpusMistake(options.limits.gpus); !mistake.empty()) {
    return ComplainOfWrongUse(absl::InvalidArgumentError(mistake));
  }
  // First of all: threads that start later must not take our signals.
  SignalQueue signals;
  const absl::StatusOr<fs::path> program = Sibling("slackline");
  if (!program.ok()) return Fail(program.status());
  absl::StatusOr<std::unique_ptr<JobHost>> host =
      JobHost::Open({.folder = options.folder, .limits = options.limits, .program = *program});
  if (absl::IsAborted(host.status())) {
    return Complain(absl::AlreadyExistsError(
        absl::StrCat("another `slackline service start` runs in ", options.folder, "; allowed is one in each folder")));
  }
  if (!host.ok()) return Complain(host.status());
  const auto server = JobServiceServer::Start(options.listen, options.folder, **host);
  if (!server.ok()) return Fail(server.status());
  const absl::StatusOr<std::string> token = security::ReadToken(TokenOfService(options.folder));
  if (!token.ok()) return Fail(token.status());
  std::error_code error;
  ServiceApi api(**host, {.folder = fs::absolute(options.folder, error), .program = *program, .token = *token});
  auto metrics = std::make_unique<Metrics>(Metrics::Labels{{"process", "service"}});
  const absl::StatusOr<std::string> page = ServePage(options.page, **host, options.limits, api, *metrics);
  if (!page.ok()) return Fail(page.status());
  if (absl::Status told = ReplaceFile(fs::path(options.folder) / "page", *page + "\n"); !told.ok()) return Fail(told);
  if (absl::Status noted = NoteService(options.folder); !noted.ok()) {
    log::Warning("other commands need --service ", options.folder, ": ", std::string(noted.message()));
  }
  std::printf("Jobs: %s\nSubmit one with `slackline submit JOB.yaml`. Ctrl-C ends the service, and its jobs go on.\n",
              page->c_str());
  std::fflush(stdout);
  absl::Notification ending;
  // A thread of its own: the folder of a job may be large, and turns must go on meanwhile.
  std::thread remover([&] {
    while (!ending.WaitForNotificationWithTimeout(kRemoveEvery)) (*host)->RemoveSurplus();
  });
  while (true) {
    (*host)->Turn();
    const std::optional<int> signal = signals.Wait(kTurnEvery);
    if (signal && IsStop(*signal)) break;
  }
  ending.Notify();
  api.End();
  metrics.reset();
  remover.join();
  std::map<std::string, size_t> count = (*host)->Count();
  std::printf("The service has ended. %s without it.\n",
              absl::StrCat(Counted(count["running"] + count["stopping"] + count["cancelling"], "job"), " run").c_str());
  return kExitDone;
}

}  // namespace

AddedCommand AddService(CLI::App& app, const char* /*program*/) {
  const auto options = std::make_shared<ServiceOptions>();
  CLI::App* command = app.add_subcommand("service", "Keep a queue of jobs on this machine");
  command->require_subcommand(1);
  CLI::App* start = command->add_subcommand("start", "Run the service, with its jobs and its page");
  start->add_option("--folder", options->folder, "Folder of the service and its jobs. Default: service")
      ->type_name("FOLDER")
      ->check(FolderMistake);
  AddLimits(*start, options->limits);
  start->add_option("--listen", options->listen, "Address for other commands. Default: a free port of 127.0.0.1")
      ->type_name("HOST:PORT")
      ->check(NotLoopback);
  start->add_option("--page", options->page, "Address of the page and the metrics. Default: a free port of 127.0.0.1")
      ->type_name("HOST:PORT")
      ->check(NotLoopback);
  SetHelp(*start, kServiceHelp);
  SetHelp(*command, {.example = "slackline service start"});
  return {command, [options] { return StartService(*options); }};
}

}  // namespace slackline::cli
