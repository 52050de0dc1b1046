#include "cli/service/service_api.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <optional>
#include <system_error>
#include <vector>

#include <nlohmann/json.hpp>
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "cli/base/complain.h"
#include "cli/base/process.h"
#include "cli/base/scratch_folder.h"
#include "cli/service/job_queue.h"
#include "cli/service/jobs_view.h"
#include "cli/service/service_api_text.h"
#include "common/security/guard.h"
#include "common/text/json_text.h"
#include "common/text/utf8.h"
#include "common/time/clock.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Checks of a job look at its data, which may lie on a slow disk.
constexpr absl::Duration kApiSubmitMax = absl::Minutes(1);
constexpr int64_t kApiTailBytes = int64_t{32} << 10;
constexpr int kJsonDepthMax = 64;
// Largest part of what somebody sent that a message shows.
constexpr size_t kApiShownMax = 200;
// The kernel takes no longer argument or variable than 128 KiB.
constexpr size_t kWordBytesMax = size_t{100} << 10;
// Lines of a refusal: one for each mistake of a job file.
constexpr size_t kWordsMax = 50;
constexpr absl::Duration kEndPoll = absl::Milliseconds(200);

HttpResponse JsonResponse(int code, std::string body) {
  return {
      .code = code, .type = "application/json", .body = std::move(body), .headers = {{"Cache-Control", "no-store"}}};
}

HttpResponse Refused(int code, absl::string_view why) {
  return JsonResponse(code, DumpJson(Json{{"error", ValidText(std::string(why))}}) + "\n");
}

HttpResponse Refused(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return Refused(400, status.message());
    case absl::StatusCode::kNotFound:
      return Refused(404, status.message());
    case absl::StatusCode::kFailedPrecondition:
      return Refused(409, status.message());
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
      return Refused(503, status.message());
    default:
      return Refused(500, status.message());
  }
}

HttpResponse NoToken() {
  HttpResponse response = Refused(
      401, "found no token, or another one; allowed is the one of the service's folder: Authorization: Bearer TOKEN");
  response.headers["WWW-Authenticate"] = "Bearer";
  return response;
}

HttpResponse OtherMethod(const HttpRequest& request, const char* allowed) {
  HttpResponse response = Refused(405, absl::StrCat("found ", request.method, "; allowed is ", allowed));
  response.headers["Allow"] = allowed;
  return response;
}

std::string ShortText(const Json& value) { return DumpJson(value).substr(0, kApiShownMax); }

absl::Status WrongField(absl::string_view name, const Json& found, absl::string_view allowed) {
  const std::string shown = found.is_null() ? "nothing" : ShortText(found);
  return absl::InvalidArgumentError(absl::StrCat(name, ": found ", shown, "; allowed is ", allowed));
}

// Fields of an object that a caller sent.
//
// Thread-safety: none.
class Fields {
 public:
  // The fields in `body`, JSON; an empty body has none.
  //   kInvalidArgument  the body is no object, or has other fields than `allowed`
  static absl::StatusOr<Fields> Read(absl::string_view body, const std::vector<std::string>& allowed) {
    Fields fields;
    if (body.empty()) return fields;
    fields.object_ = ParseJson(body, kJsonDepthMax);
    if (!fields.object_.is_object()) {
      return absl::InvalidArgumentError("found a body that is no JSON object; allowed is one, as {}");
    }
    for (const auto& [name, unused] : fields.object_.items()) {
      if (std::find(allowed.begin(), allowed.end(), name) == allowed.end()) {
        return absl::InvalidArgumentError(absl::StrCat("found the field ", ShortText(name), "; allowed are ",
                                                       allowed.empty() ? "none" : absl::StrJoin(allowed, ", ")));
      }
    }
    return fields;
  }

  // The value of a field; null if it is missing.
  const Json& At(const std::string& name) const {
    static const Json& none = *new Json(nullptr);
    const auto found = object_.find(name);
    return found == object_.end() ? none : *found;
  }

  // The first mistake of all fields that were read.
  const absl::Status& status() const { return status_; }

  std::string Text(const std::string& name) {
    const Json& value = At(name);
    if (value.is_null()) return "";
    if (IsWord(value)) return value;
    status_.Update(WrongField(name, value, kWord));
    return "";
  }

  std::vector<std::string> Texts(const std::string& name) {
    const Json& value = At(name);
    std::vector<std::string> texts;
    if (value.is_null()) return texts;
    bool right = value.is_array();
    for (size_t i = 0; right && i < value.size(); ++i) {
      right = IsWord(value[i]);
      if (right) texts.push_back(value[i]);
    }
    if (!right) status_.Update(WrongField(name, value, absl::StrCat("a list, each of it ", kWord)));
    return texts;
  }

  // A number without fraction, as text; empty if it is missing.
  std::string Number(const std::string& name) {
    const Json& value = At(name);
    if (value.is_null()) return "";
    if (value.is_number_integer()) return DumpJson(value);
    status_.Update(WrongField(name, value, "a whole number"));
    return "";
  }

  // NAME=VALUE of an object with texts; empty if it is missing.
  std::vector<std::string> Variables(const std::string& name) {
    const Json& value = At(name);
    std::vector<std::string> variables;
    if (value.is_null()) return variables;
    bool right = value.is_object() && !value.empty();
    if (right) {
      for (const auto& [key, text] : value.items()) {
        right = right && IsWord(key) && !absl::StrContains(key, '=') && (text == "" || IsWord(text));
        if (right) variables.push_back(absl::StrCat(key, "=", text.get_ref<const std::string&>()));
      }
    }
    if (!right)
      status_.Update(WrongField(
          name, value, "an object with names of variables, without =, and a text of at most 100 KiB for each"));
    return variables;
  }

 private:
  static constexpr char kWord[] = "a text that is not empty, of at most 100 KiB and without zeros";
  static bool IsWord(const Json& value) {
    if (!value.is_string()) return false;
    const auto& text = value.get_ref<const std::string&>();
    return !text.empty() && text.size() <= kWordBytesMax && !absl::StrContains(text, '\0');
  }

  Json object_ = Json::object();
  absl::Status status_;
};

// A job that a caller wants to submit.
struct Submission {
  // Text of the job file.
  std::string job;
  std::vector<std::string> environment;
  // Words of `slackline submit` behind the job file.
  std::vector<std::string> words;
};

absl::StatusOr<Submission> ReadSubmission(absl::string_view body) {
  absl::StatusOr<Fields> read =
      Fields::Read(body, {"job", "folder", "overrides", "script", "python", "arguments", "name", "owner", "priority",
                          "memory_bytes", "gpus", "on", "sbatch", "environment"});
  if (!read.ok()) return read.status();
  Fields& fields = *read;
  Submission submission;
  const Json& job = fields.At("job");
  if (!job.is_object() && (!job.is_string() || job == "")) {
    return WrongField("job", job, "a job file: an object with its sections, or its text in YAML");
  }
  // JSON is YAML, too.
  submission.job = job.is_string() ? job.get<std::string>() : DumpJson(job);
  const std::string folder = fields.Text("folder");
  submission.environment = fields.Variables("environment");
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) submission.words.push_back(absl::StrCat(option, "=", value));
  };
  for (const std::string& setting : fields.Texts("overrides")) add("--set", setting);
  for (const char* const name : {"name", "owner", "on", "script", "python"}) {
    add(absl::StrCat("--", name).c_str(), fields.Text(name));
  }
  add("--priority", fields.Number("priority"));
  const std::string memory = fields.Number("memory_bytes");
  // The command takes no 0, which says nothing.
  if (memory != "0") add("--memory", memory);
  add("--gpus", fields.Number("gpus"));
  for (const std::string& option : fields.Texts("sbatch")) add("--sbatch", option);
  const std::vector<std::string> arguments = fields.Texts("arguments");
  if (!arguments.empty()) submission.words.push_back("--");
  submission.words.insert(submission.words.end(), arguments.begin(), arguments.end());
  if (!fields.status().ok()) return fields.status();
  if (!absl::StartsWith(folder, "/")) {
    return WrongField("folder", fields.At("folder"), "the absolute path of the folder in which the job runs");
  }
  submission.words.insert(submission.words.begin(), absl::StrCat("--chdir=", folder));
  return submission;
}

// Bytes at the end of `text` that are the beginning of a character in UTF-8.
size_t BrokenCharacterBytes(absl::string_view text) {
  for (size_t bytes = 1; bytes <= std::min<size_t>(3, text.size()); ++bytes) {
    const auto byte = static_cast<unsigned char>(text[text.size() - bytes]);
    if ((byte & 0xC0) == 0x80) continue;
    return Utf8SequenceBytes(text.substr(text.size() - bytes)) == 0 ? bytes : 0;
  }
  return 0;
}

}  // namespace

bool ServiceApi::MayOrder(const HttpRequest& request) const {
  return security::HasToken(request.header(security::kTokenKey), options_.token);
}

HttpResponse ServiceApi::InTurn(const std::function<HttpResponse()>& order) {
  HttpResponse response;
  if (++long_orders_ > kLongOrdersMax) {
    response = Refused(429, absl::StrCat("found ", kLongOrdersMax,
                                         " submissions or removals in progress, and so many are allowed; "
                                         "nothing was done, try again"));
    response.headers["Retry-After"] = "1";
  } else {
    response = order();
  }
  --long_orders_;
  return response;
}

HttpResponse ServiceApi::Submit(const HttpRequest& request) const {
  const absl::StatusOr<Submission> submission = ReadSubmission(request.body);
  if (!submission.ok()) return Refused(submission.status());
  const ScratchFolder scratch("submit");
  const fs::path job = scratch.path() / "job.yaml", said = scratch.path() / "said";
  if (scratch.path().empty() || !(std::ofstream(job) << submission->job).flush()) {
    return Refused(503, "the service cannot write into its folder for temporary files");
  }
  std::vector<std::string> command = {options_.program, "submit", "-", "--service", options_.folder};
  command.insert(command.end(), submission->words.begin(), submission->words.end());
  absl::StatusOr<Process> process = Process::Start({.name = "slackline submit",
                                                    .command = std::move(command),
                                                    .log = said,
                                                    .input = job,
                                                    .environment = submission->environment});
  if (!process.ok()) return Refused(500, process.status().message());
  const absl::Time deadline = SteadyTime().Now() + kApiSubmitMax;
  std::optional<ProcessEnd> end;
  while (!end && !ending_ && SteadyTime().Now() < deadline) end = process->WaitFor(kEndPoll);
  if (!end) {
    return Refused(503, absl::StrCat("the job was not checked within ", absl::FormatDuration(kApiSubmitMax),
                                     ", or the service ends; look whether it is in the list"));
  }
  // The words of the command, in the terms of the request.
  std::string words = absl::StrReplaceAll(absl::StrCat("\n", process->LastWords(kWordsMax)),
                                          {{"\nslackline: ", "\n"},
                                           {"\nslackline: standard input:", "\njob:"},
                                           {"\nslackline: --chdir:", "\nfolder:"},
                                           {"\n--priority:", "\npriority:"},
                                           {"\n--memory:", "\nmemory_bytes:"},
                                           {"\n--gpus:", "\ngpus:"},
                                           {"\n--on:", "\non:"},
                                           {"\nRun with --help for more information.", ""}});
  words.erase(0, 1);
  uint64_t id = 0;
  // The last line is the number; warnings may stand before it.
  if (end->ok() && absl::SimpleAtoi(words.substr(words.rfind('\n') + 1), &id)) {
    HttpResponse created = JsonResponse(201, DumpJson(Json{{"id", id}}) + "\n");
    created.headers["Location"] = absl::StrCat("/api/jobs/", id);
    return created;
  }
  const bool refused = !end->by_signal && end->code == kExitWrongUse;
  return Refused(refused ? 400 : 503, words.empty() ? absl::StrCat("slackline submit: ", end->Describe()) : words);
}

HttpResponse ServiceApi::Job(uint64_t id) const {
  wire::ListJobsRequest request;
  request.set_id(id);
  const absl::StatusOr<wire::ListJobsReply> jobs = host_.List(request);
  if (!jobs.ok()) return Refused(jobs.status());
  if (jobs->jobs().empty()) return Refused(404, absl::StrCat("found no job ", id));
  return JsonResponse(200, JobJson(jobs->jobs(0), absl::Now()));
}

HttpResponse ServiceApi::Log(uint64_t id, const HttpRequest& request) const {
  wire::ReadJobLogRequest read;
  read.set_id(id);
  int64_t first = -kApiTailBytes;
  for (absl::string_view part : absl::StrSplit(request.query, '&', absl::SkipEmpty())) {
    if (absl::ConsumePrefix(&part, "process=")) {
      read.set_process(ValidText(part));
    } else if (!absl::ConsumePrefix(&part, "from=")) {
      return Refused(400, absl::StrCat("found ", ShortText(std::string(part)), "; allowed are process= and from="));
    } else if (!absl::SimpleAtoi(part, &first)) {
      return Refused(400, absl::StrCat("from: found ", ShortText(std::string(part)), "; allowed is a number of bytes"));
    }
  }
  read.set_from(first);
  absl::StatusOr<wire::ReadJobLogReply> log = host_.ReadLog(read);
  if (absl::IsNotFound(log.status()) && read.process().empty()) {
    // A job that waits has an empty log.
    wire::ListJobsRequest one;
    one.set_id(id);
    const absl::StatusOr<wire::ListJobsReply> jobs = host_.List(one);
    if (jobs.ok() && jobs->jobs_size() == 1) {
      log = wire::ReadJobLogReply();
      log->set_end(HasEnded(jobs->jobs(0)));
    }
  }
  if (!log.ok()) return Refused(log.status());
  // A character of which a part is not written yet, or not read, comes with the next answer.
  absl::string_view text = log->text();
  const size_t cut = log->end() ? 0 : BrokenCharacterBytes(text);
  text.remove_suffix(cut);
  const Json answer = {
      {"text", std::string(text)}, {"next", log->next() - static_cast<int64_t>(cut)}, {"end", log->end()}};
  return JsonResponse(200, DumpJson(answer) + "\n");
}

HttpResponse ServiceApi::Order(uint64_t id, wire::JobOrder order, const HttpRequest& request) const {
  const bool resume = order == wire::JOB_ORDER_RESUME,
             ends = order == wire::JOB_ORDER_STOP || order == wire::JOB_ORDER_CANCEL;
  std::vector<std::string> allowed;
  if (resume) allowed = {"overrides"};
  if (ends) allowed = {"reason"};
  absl::StatusOr<Fields> fields = Fields::Read(request.body, allowed);
  if (!fields.ok()) return Refused(fields.status());
  wire::OrderJobRequest told;
  told.set_id(id);
  told.set_order(order);
  for (const std::string& setting : fields->Texts("overrides")) told.add_overrides(setting);
  const std::string reason = fields->Text("reason");
  if (ends) told.set_reason(reason);
  if (!fields->status().ok()) return Refused(fields->status());
  const absl::StatusOr<wire::OrderJobReply> reply = host_.Order(told);
  if (!reply.ok()) return Refused(reply.status());
  if (order == wire::JOB_ORDER_REMOVE) return JsonResponse(200, DumpJson(Json{{"id", id}}) + "\n");
  return Job(id);
}

HttpResponse ServiceApi::Answer(const HttpRequest& request) {
  static const auto& kOrders = *new std::map<std::string, wire::JobOrder>{
      {"stop", wire::JOB_ORDER_STOP}, {"cancel", wire::JOB_ORDER_CANCEL}, {"resume", wire::JOB_ORDER_RESUME}};
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (!reads && !MayOrder(request)) return NoToken();
  if (request.path == "/api/openapi.yaml") {
    if (!reads) return OtherMethod(request, "GET");
    return {.type = "application/yaml", .body = std::string(OpenApiYaml())};
  }
  // The list itself is a page.
  if (request.path == "/api/jobs") {
    if (request.method != "POST") return OtherMethod(request, "GET, POST");
    return InTurn([&] { return Submit(request); });
  }
  const std::vector<std::string> parts = absl::StrSplit(request.path, '/');
  uint64_t id = 0;
  const bool known = (parts.size() == 4 || parts.size() == 5) && parts[1] == "api" && parts[2] == "jobs";
  if (!known) {
    return Refused(404, absl::StrCat("found no ", ValidText(request.path.substr(0, kApiShownMax)),
                                     "; /api/openapi.yaml describes what there is"));
  }
  if (!absl::SimpleAtoi(parts[3], &id) || id == 0) {
    return Refused(404, absl::StrCat("found no job ", ValidText(parts[3].substr(0, kApiShownMax)),
                                     "; allowed is the number of a job"));
  }
  if (parts.size() == 4) {
    if (request.method == "DELETE") return InTurn([&] { return Order(id, wire::JOB_ORDER_REMOVE, request); });
    return reads ? Job(id) : OtherMethod(request, "GET, DELETE");
  }
  if (parts[4] == "log") {
    if (!reads) return OtherMethod(request, "GET");
    return MayOrder(request) ? Log(id, request) : NoToken();
  }
  const auto order = kOrders.find(parts[4]);
  if (order == kOrders.end()) {
    return Refused(404, absl::StrCat("found ", ShortText(parts[4]), "; allowed are log, stop, cancel, resume"));
  }
  return request.method == "POST" ? Order(id, order->second, request) : OtherMethod(request, "POST");
}

}  // namespace slackline::cli
