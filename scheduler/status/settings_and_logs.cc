#include "scheduler/status/settings_and_logs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <system_error>

#include <nlohmann/json.hpp>
#include "common/job/job_file.h"
#include "common/shm/descriptor.h"
#include "common/text/json_text.h"
#include "common/text/utf8.h"
#include "scheduler/status/status_limits.h"

namespace slackline::scheduler {
namespace {

namespace fs = std::filesystem;

constexpr char kLogEnding[] = ".log";

// Returns the files by the names of their processes. None of them is a link, and nor is their folder.
std::map<std::string, fs::path> LogFiles(const std::string& run_folder) {
  std::map<std::string, fs::path> files;
  const fs::path folder = fs::path(run_folder) / "logs";
  std::error_code error;
  if (fs::symlink_status(folder, error).type() != fs::file_type::directory) return files;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code unknown;
    const bool is_file = at->symlink_status(unknown).type() == fs::file_type::regular;
    if (is_file && at->path().extension() == kLogEnding) files.emplace(at->path().stem().string(), at->path());
  }
  return files;
}

// Returns the whole lines at the end.
std::string Tail(const std::string& text, bool from_begin) {
  size_t begin = 0;
  if (!from_begin) begin = std::min(text.size(), text.find('\n') + 1);
  size_t lines = 0;
  for (size_t at = text.size(); at > begin; --at) {
    if (text[at - 1] != '\n' || at == text.size()) continue;
    if (++lines == kLogLinesShown) return text.substr(at);
  }
  return text.substr(begin);
}

}  // namespace

std::string SettingsJson(const job::Job& job) {
  nlohmann::ordered_json settings = nlohmann::ordered_json::array();
  for (const SettingView& setting : SettingsOf(job)) {
    settings.push_back({{"key", setting.key}, {"value", ValidText(setting.value)}, {"default", setting.is_default}});
  }
  return DumpJson(nlohmann::ordered_json({{"settings", std::move(settings)}}));
}

std::string LogsJson(const std::string& run_folder) {
  nlohmann::ordered_json logs = nlohmann::ordered_json::array();
  for (const auto& [name, file] : LogFiles(run_folder)) {
    if (logs.size() >= kLogsShown) break;
    std::error_code error;
    const uintmax_t bytes = fs::file_size(file, error);
    logs.push_back({{"name", ValidText(name)}, {"bytes", error ? 0 : bytes}});
  }
  return DumpJson(nlohmann::ordered_json({{"logs", std::move(logs)}}));
}

std::optional<std::string> LogTail(const std::string& run_folder, absl::string_view name) {
  const std::map<std::string, fs::path> files = LogFiles(run_folder);
  const auto found = files.find(std::string(name));
  if (found == files.end()) return std::nullopt;
  // The file may have been replaced since: by a link, or by a pipe that would block.
  const shm::Descriptor file(::open(found->second.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct ::stat facts {};
  if (file.get() < 0 || ::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return std::nullopt;
  const off_t begin = std::max<off_t>(0, facts.st_size - static_cast<off_t>(kLogBytesShown));
  std::string text(static_cast<size_t>(facts.st_size - begin), '\0');
  const ssize_t read = ::pread(file.get(), text.data(), text.size(), begin);
  if (read < 0) return std::nullopt;
  text.resize(static_cast<size_t>(read));
  return ValidText(Tail(text, begin == 0));
}

}  // namespace slackline::scheduler
