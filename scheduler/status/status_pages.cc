#include "scheduler/status/status_pages.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "scheduler/status/page_files.h"
#include "scheduler/status/settings_and_logs.h"

namespace slackline::scheduler {
namespace {

// A status of a thousand workers is large: a stream sends no more than so much a second.
constexpr double kBytesPerSecondMax = 1 << 20;
// Between two signs of life where events are further apart.
constexpr absl::Duration kHeartbeat = absl::Seconds(10);
constexpr int kRetryS = 5;

// Nothing but what this server sends, nothing inline, no frames around it.
std::map<std::string, std::string> Headers() {
  return {{"Content-Security-Policy",
           "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
           "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
          {"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"},
          {"Cache-Control", "no-store"}};
}

HttpServer::Handler File(const char* type, absl::string_view text) {
  return [type, text](const HttpRequest&) {
    return HttpResponse{.code = 200, .type = type, .body = std::string(text), .headers = Headers()};
  };
}

HttpResponse Later(const std::string& why) {
  HttpResponse response{.code = 503, .body = why + "\n", .headers = Headers()};
  response.headers["Retry-After"] = absl::StrCat(kRetryS);
  return response;
}

HttpResponse Status(StatusBoard& board) {
  const std::shared_ptr<const std::string> json = board.Json();
  if (json == nullptr) return Later("the scheduler is not there yet, or ends");
  return {.code = 200, .type = "application/json", .body = *json + "\n", .headers = Headers()};
}

// Until the reader or the board is gone.
void Follow(StatusBoard& board, absl::Duration every, HttpStream& stream) {
  while (const std::shared_ptr<const std::string> json = board.Json()) {
    if (!stream.Send(absl::StrCat("event: status\ndata: ", *json, "\n\n"))) return;
    absl::Duration left = std::max(every, absl::Seconds(static_cast<double>(json->size()) / kBytesPerSecondMax));
    for (; left > kHeartbeat; left -= kHeartbeat) {
      board.Wait(kHeartbeat);
      if (!stream.Send(": still here\n\n")) return;
    }
    board.Wait(left);
  }
}

// The list of logs, or with ?name=NAME the end of one.
HttpResponse Logs(const std::string& run_folder, absl::string_view query) {
  if (query.empty()) {
    return {.code = 200, .type = "application/json", .body = LogsJson(run_folder) + "\n", .headers = Headers()};
  }
  const std::optional<std::string> tail =
      absl::ConsumePrefix(&query, "name=") ? LogTail(run_folder, query) : std::nullopt;
  if (!tail)
    return {
        .code = 404, .body = "found no such log; allowed is ?name= and a name of /api/logs\n", .headers = Headers()};
  return {.code = 200, .body = *tail, .headers = Headers()};
}

// A stream's place among those that there may be; free again with the last copy.
class Place {
 public:
  explicit Place(std::shared_ptr<std::atomic<int>> taken) : taken_(std::move(taken)), number_(++*taken_) {}
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() { --*taken_; }
  int number() const { return number_; }

 private:
  const std::shared_ptr<std::atomic<int>> taken_;
  const int number_;
};

}  // namespace

std::map<std::string, HttpServer::Handler> StatusPages(StatusBoard& board, const StatusPagesOptions& options) {
  std::map<std::string, HttpServer::Handler> pages = {
      {"/", File("text/html; charset=utf-8", PageHtml())},
      {"/page.css", File("text/css; charset=utf-8", PageCss())},
      {"/page.js", File("text/javascript; charset=utf-8", PageJs())},
      {"/charts.js", File("text/javascript; charset=utf-8", ChartsJs())},
      {"/icon.svg", File("image/svg+xml", IconSvg())},
      {"/api/status", [&board](const HttpRequest&) { return Status(board); }},
      {"/api/settings",
       [settings = options.settings](const HttpRequest&) {
         return HttpResponse{.code = 200, .type = "application/json", .body = settings + "\n", .headers = Headers()};
       }},
      {"/api/logs", [folder = options.run_folder](const HttpRequest& request) { return Logs(folder, request.query); }},
  };
  pages["/api/events"] = [&board, options,
                          taken = std::make_shared<std::atomic<int>>(0)](const HttpRequest&) -> HttpResponse {
    const auto place = std::make_shared<const Place>(taken);
    if (place->number() > options.streams_max) {
      return Later(absl::StrCat("found ", options.streams_max, " streams already, and so many are allowed; /api/status",
                                " has the same"));
    }
    if (board.Json() == nullptr) return Later("the scheduler is not there yet, or ends");
    HttpResponse response{.code = 200, .type = "text/event-stream", .body = "", .headers = Headers()};
    response.headers["X-Accel-Buffering"] = "no";
    response.stream = [&board, every = options.every, place](HttpStream& stream) { Follow(board, every, stream); };
    return response;
  };
  return pages;
}

}  // namespace slackline::scheduler
