#include "common/logging.h"

#include <chrono>
#include <utility>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include "absl/time/time.h"
#include "common/json_text.h"
#include "common/log_format.h"

namespace slackline::log {
namespace {

void Write(spdlog::level::level_enum level, absl::string_view message) {
  spdlog::default_logger_raw()->log(level, spdlog::string_view_t(message.data(), message.size()));
}

absl::string_view View(const spdlog::string_view_t& text) { return {text.data(), text.size()}; }

// {"time":"2026-01-31T12:00:00.123+01:00","level":"info","process":"ps-1","job":"first","message":"..."}
class JsonFormatter : public spdlog::formatter {
 public:
  explicit JsonFormatter(const std::string& job) : job_(JsonText(job)) {}

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    // What a log is cut at is the end of a line: no text has one inside.
    const std::string line =
        absl::StrCat("{\"time\":\"",
                     absl::FormatTime("%Y-%m-%dT%H:%M:%E3S%Ez", absl::FromChrono(message.time), absl::LocalTimeZone()),
                     "\",\"level\":", JsonText(View(spdlog::level::to_string_view(message.level))),
                     ",\"process\":", JsonText(View(message.logger_name)), ",\"job\":", job_,
                     ",\"message\":", JsonText(View(message.payload)), "}\n");
    out.append(line.data(), line.data() + line.size());
  }

  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(*this); }

 private:
  const std::string job_;
};

std::shared_ptr<spdlog::logger> NewLogger(const std::string& process) {
  auto logger = std::make_shared<spdlog::logger>(process, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->flush_on(spdlog::level::info);
  return logger;
}

}  // namespace

void Initialise(const std::string& process, Least least) {
  auto logger = NewLogger(process);
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %n %l: %v");
  if (least == Least::kWarning) logger->set_level(spdlog::level::warn);
  if (least == Least::kNothing) logger->set_level(spdlog::level::off);
  spdlog::set_default_logger(std::move(logger));
}

void InitialiseCommand(const std::string& command) {
  auto logger = NewLogger(command);
  logger->set_pattern("%n: %v");
  spdlog::set_default_logger(std::move(logger));
}

void WriteJson(const std::string& job) {
  spdlog::default_logger_raw()->set_formatter(std::make_unique<JsonFormatter>(job));
}

void Info(absl::string_view message) { Write(spdlog::level::info, message); }
void Warning(absl::string_view message) { Write(spdlog::level::warn, message); }
void Error(absl::string_view message) { Write(spdlog::level::err, message); }

void Flush() { spdlog::default_logger_raw()->flush(); }

}  // namespace slackline::log
