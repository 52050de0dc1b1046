#include "common/logging.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace slackline::log {
namespace {

void Write(spdlog::level::level_enum level, absl::string_view message) {
  spdlog::default_logger_raw()->log(level, spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace

void Initialise(const std::string& process, Least least) {
  auto logger = std::make_shared<spdlog::logger>(process, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %n %l: %v");
  logger->flush_on(spdlog::level::info);
  if (least == Least::kWarning) logger->set_level(spdlog::level::warn);
  if (least == Least::kNothing) logger->set_level(spdlog::level::off);
  spdlog::set_default_logger(std::move(logger));
}

void Info(absl::string_view message) { Write(spdlog::level::info, message); }
void Warning(absl::string_view message) { Write(spdlog::level::warn, message); }
void Error(absl::string_view message) { Write(spdlog::level::err, message); }

void Flush() { spdlog::default_logger_raw()->flush(); }

}  // namespace slackline::log
