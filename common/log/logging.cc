#include "common/log/logging.h"

#include <unistd.h>

#include <mutex>
#include <utility>

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include "absl/time/time.h"
#include "common/log/log_format.h"
#include "common/log/output.h"
#include "common/text/json_text.h"

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

// Standard error. Threads that log are not held up by a reader who has stopped reading.
class ErrorSink : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (const uint64_t left_out = out_.TakeLeftOut(); left_out > 0) {
      const std::string text =
          absl::StrCat("nobody read this for a while: ", left_out, " lines could not be kept, and are left out here");
      Format({message.logger_name, spdlog::level::warn, text});
    }
    Format(message);
  }
  void flush_() override { out_.Flush(); }

 private:
  void Format(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    out_.Write({line.data(), line.size()});
  }

  Output out_{STDERR_FILENO};
};

std::shared_ptr<spdlog::logger> NewLogger(const std::string& process) {
  return std::make_shared<spdlog::logger>(process, std::make_shared<ErrorSink>());
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
