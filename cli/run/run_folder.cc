#include "cli/run/run_folder.h"

#include <fstream>
#include <system_error>

#include <nlohmann/json.hpp>
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/base/replace_file.h"
#include "common/text/folder_name.h"
#include "common/text/json_text.h"
#include "common/text/utf8.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

// All of the path is looked at.
absl::Status CheckName(const fs::path& path) {
  const std::string name = fs::absolute(path).string();
  const std::string mistake = FolderMistake(name);
  if (mistake.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("run folder ", ValidText(name), ": ", mistake));
}

}  // namespace

absl::StatusOr<RunFolder> RunFolder::Create(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path, error)) {
    if (!fs::is_directory(path, error)) {
      return absl::AlreadyExistsError(absl::StrCat("run folder ", path.string(), ": found a file of that name"));
    }
    if (!fs::is_empty(path, error) || error) {
      return absl::AlreadyExistsError(
          absl::StrCat("run folder ", path.string(), ": found files in it; allowed is a new or an empty folder"));
    }
  }
  return Make(path);
}

absl::StatusOr<RunFolder> RunFolder::CreateSubmitted(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return Create(path);
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (!MayPrecede(entry.path().filename())) return Create(path);
  }
  return Make(path);
}

bool RunFolder::MayPrecede(const std::string& name) {
  return name == "lock" || name == "lock.held" || name == "script.json" || name == "submit" || name == "nodes" ||
         absl::StartsWith(name, "attempt-");
}

absl::StatusOr<RunFolder> RunFolder::Join(const fs::path& path, const std::string& node) {
  RunFolder folder(fs::absolute(path).lexically_normal());
  std::error_code error;
  if (!fs::exists(folder.job_file(), error)) {
    return absl::NotFoundError(absl::StrCat("found no run in ", path.string(), " (job.yaml)"));
  }
  folder.processes_ = absl::StrCat("processes-", node, ".json");
  return folder;
}

absl::StatusOr<RunFolder> RunFolder::Make(const fs::path& path) {
  if (absl::Status name = CheckName(path); !name.ok()) return name;
  std::error_code error;
  const fs::path absolute = fs::absolute(path).lexically_normal();
  fs::create_directories(absolute / "logs", error);
  if (error) {
    return absl::UnavailableError(absl::StrCat("cannot make the run folder ", path.string(), ": ", error.message()));
  }
  return RunFolder(absolute);
}

absl::StatusOr<RunFolder> RunFolder::CreateUnused(const fs::path& path) {
  if (absl::Status name = CheckName(path); !name.ok()) return name;
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  fs::path unused = path;
  // Only one of two that make a folder at the same time is told that it did.
  for (int number = 2; !error && !fs::create_directory(unused, error); ++number) {
    if (!error) unused = absl::StrCat(path.string(), "-", number);
  }
  if (error) {
    return absl::UnavailableError(absl::StrCat("cannot make the run folder ", unused.string(), ": ", error.message()));
  }
  return Create(unused);
}

absl::StatusOr<RunFolder> RunFolder::Reopen(const fs::path& path) {
  if (absl::Status name = CheckName(path); !name.ok()) return name;
  const RunFolder folder(fs::absolute(path).lexically_normal());
  std::error_code error;
  if (!fs::exists(folder.job_file(), error)) {
    return absl::NotFoundError(absl::StrCat("found no run in ", path.string(), " (job.yaml)"));
  }
  fs::create_directories(folder.path_ / "logs", error);
  if (!error) fs::remove(folder.address_file(), error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot write in ", path.string(), ": ", error.message()));
  return folder;
}

absl::Status RunFolder::WriteJob(const std::string& yaml) const { return ReplaceFile(job_file(), yaml); }

absl::Status RunFolder::MakeAgain(const std::string& yaml) const {
  const absl::StatusOr<RunFolder> made = Make(path_);
  return made.ok() ? WriteJob(yaml) : made.status();
}

absl::Status RunFolder::WriteProcesses(const std::vector<ProcessRecord>& processes) const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ProcessRecord& process : processes) {
    list.push_back({{"name", process.name},
                    {"role", process.role},
                    {"pid", process.pid},
                    {"restarts", process.restarts},
                    {"state", process.state}});
  }
  return ReplaceFile(path_ / processes_, DumpJson(list, 2) + "\n");
}

std::vector<ProcessRecord> RunFolder::ReadProcesses(const fs::path& run) {
  const nlohmann::json list = ReadJson(run / "processes.json");
  std::vector<ProcessRecord> processes;
  if (!list.is_array()) return processes;
  const auto text = [](const nlohmann::json& entry, const char* key) {
    const nlohmann::json value = entry.is_object() ? entry.value(key, nlohmann::json()) : nlohmann::json();
    return value.is_string() ? value.get<std::string>() : "";
  };
  const auto number = [](const nlohmann::json& entry, const char* key) {
    const nlohmann::json value = entry.is_object() ? entry.value(key, nlohmann::json()) : nlohmann::json();
    return value.is_number_unsigned() ? value.get<uint32_t>() : 0;
  };
  for (const nlohmann::json& entry : list) {
    processes.push_back({text(entry, "name"), text(entry, "role"), static_cast<pid_t>(number(entry, "pid")),
                         number(entry, "restarts"), text(entry, "state")});
  }
  return processes;
}

absl::StatusOr<std::string> RunFolder::ReadAddressFile(const fs::path& run) {
  std::ifstream in(AddressFile(run));
  std::string address;
  if (!std::getline(in, address)) {
    return absl::NotFoundError(absl::StrCat("found no ", AddressFile(run).string()));
  }
  return std::string(absl::StripAsciiWhitespace(address));
}

fs::path DefaultRunFolder(const std::string& name, absl::Time now) {
  return fs::path("runs") / absl::StrCat(name, "-", absl::FormatTime("%Y%m%d-%H%M%S", now, absl::LocalTimeZone()));
}

}  // namespace slackline::cli
