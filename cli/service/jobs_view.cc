#include "cli/service/jobs_view.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/base/byte_size.h"
#include "cli/base/table.h"
#include "cli/run/listed_run.h"
#include "cli/run/progress.h"
#include "cli/service/job_queue.h"
#include "common/text/counted.h"
#include "common/text/json_text.h"
#include "common/text/utf8.h"

namespace slackline::cli {
namespace {

const std::vector<std::string> kJobTitles = {"job",    "name",      "owner", "state",  "mode", "workers", "servers",
                                             "epochs", "best test", "gpus",  "memory", "age",  "size"};
constexpr size_t kJobTexts = 5, kJobNameColumn = 1;

// Returns the seconds since the job was submitted.
double JobAgeS(const wire::ServiceJob& job, absl::Time now) {
  return std::max(0.0, absl::ToDoubleSeconds(now - absl::UnixEpoch()) - job.submitted_s());
}

std::vector<std::string> JobCells(const wire::ServiceJob& job, absl::Time now) {
  std::vector<std::string> row = {absl::StrCat(job.id()), OneLine(ValidText(job.name())),
                                  OneLine(ValidText(job.owner())), StateName(job)};
  for (std::string& cell : FigureCells(job.figures())) row.push_back(std::move(cell));
  row.push_back(job.needs().gpus() > 0 ? absl::StrCat(job.needs().gpus()) : "-");
  row.push_back(job.needs().memory_bytes() > 0 ? RenderBytes(job.needs().memory_bytes()) : "-");
  row.push_back(RenderAge(JobAgeS(job, now)));
  row.push_back(job.figures().has_bytes() ? RenderBytes(job.figures().bytes()) : "-");
  return row;
}

std::string Unlisted(const wire::ListJobsReply& jobs) {
  return jobs.unlisted() == 0 ? "" : absl::StrCat(Counted(jobs.unlisted(), "other job"), " not shown");
}

// Returns `text` for the text and the attributes of a page.
std::string HtmlText(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

template <typename Value>
nlohmann::ordered_json JobValue(bool has, Value value) {
  return has ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json ValueOf(const wire::ServiceJob& job, absl::Time now) {
  const wire::ServiceJobFigures& figures = job.figures();
  return {{"id", job.id()},
          {"name", job.name()},
          {"owner", job.owner()},
          {"priority", job.priority()},
          {"on", IsOnSlurm(job) ? "slurm" : "local"},
          {"state", StateName(job)},
          {"reason", JobValue(!job.reason().empty(), job.reason())},
          {"mode", JobValue(!figures.mode().empty(), figures.mode())},
          {"workers", JobValue(figures.has_workers(), figures.workers())},
          {"servers", JobValue(figures.has_servers(), figures.servers())},
          {"epochs_done", JobValue(figures.has_epochs_done(), figures.epochs_done())},
          {"epochs", JobValue(figures.has_epochs(), figures.epochs())},
          {"metric", JobValue(!figures.metric().empty(), figures.metric())},
          {"best", JobValue(figures.has_best(), figures.best())},
          {"bytes", JobValue(figures.has_bytes(), figures.bytes())},
          {"age_s", JobAgeS(job, now)},
          {"begins", job.begins()},
          {"memory_bytes", job.needs().memory_bytes()},
          {"gpus", job.needs().gpus()},
          {"gpu_names", std::vector<std::string>(job.gpus().begin(), job.gpus().end())},
          {"folder", job.run_folder()}};
}

}  // namespace

std::string RenderJobs(const wire::ListJobsReply& jobs, absl::Time now) {
  Table table = {.rows = {kJobTitles}, .texts = kJobTexts, .shortened = kJobNameColumn};
  for (const wire::ServiceJob& job : jobs.jobs()) table.rows.push_back(JobCells(job, now));
  std::string text = RenderTable(std::move(table));
  for (const wire::ServiceJob& job : jobs.jobs()) {
    const bool tells = job.state() == wire::SERVICE_JOB_QUEUED || job.state() == wire::SERVICE_JOB_FAILED ||
                       (job.state() == wire::SERVICE_JOB_RUNNING && IsOnSlurm(job));
    if (!job.reason().empty() && tells) {
      absl::StrAppend(&text, "job ", job.id(), " is ", StateName(job), ": ", OneLine(job.reason()), "\n");
    }
  }
  const std::string more = Unlisted(jobs);
  return more.empty() ? text : absl::StrCat(text, more, "\n");
}

std::string JobJson(const wire::ServiceJob& job, absl::Time now) { return DumpJson(ValueOf(job, now), 2) + "\n"; }

std::string JobsJson(const wire::ListJobsReply& jobs, absl::Time now) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const wire::ServiceJob& job : jobs.jobs()) list.push_back(ValueOf(job, now));
  return DumpJson(list, 2) + "\n";
}

std::string TargetsOf(const wire::ListJobsReply& jobs) {
  nlohmann::json all = nlohmann::json::array();
  for (const wire::ServiceJob& job : jobs.jobs()) {
    if (job.state() != wire::SERVICE_JOB_RUNNING) continue;
    nlohmann::json own = ReadJson(absl::StrCat(job.run_folder(), "/prometheus/targets.json"));
    if (!own.is_array()) continue;
    for (nlohmann::json& target : own) {
      if (!target.is_object() || !target["labels"].is_object()) continue;
      target["labels"]["run"] = absl::StrCat(job.id());
      target["labels"]["owner"] = ValidText(job.owner());
      all.push_back(std::move(target));
    }
  }
  return DumpJson(all) + "\n";
}

std::string JobsPage(const wire::ListJobsReply& jobs, absl::Time now) {
  std::string page =
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Slackline jobs</title>"
      "<meta http-equiv=\"refresh\" content=\"3\"><style>body{font:14px system-ui;margin:2em}"
      "table{border-collapse:collapse}td,th{text-align:left;padding:.3em .8em;border-bottom:1px solid #ddd}"
      "</style></head><body><h1>Jobs</h1><table><tr>";
  for (const std::string& title : kJobTitles) absl::StrAppend(&page, "<th>", title, "</th>");
  page += "<th>reason</th></tr>";
  for (const wire::ServiceJob& job : jobs.jobs()) {
    page += "<tr>";
    for (const std::string& cell : JobCells(job, now)) absl::StrAppend(&page, "<td>", HtmlText(cell), "</td>");
    absl::StrAppend(&page, "<td>", HtmlText(OneLine(ValidText(job.reason()))), "</td></tr>");
  }
  return absl::StrCat(page, "</table><p>", Unlisted(jobs), "</p></body></html>\n");
}

}  // namespace slackline::cli
