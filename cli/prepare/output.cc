#include "cli/prepare/output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "common/storage/durable_file.h"
#include "common/text/json_text.h"
#include "images/prepared/prepared_index.h"

namespace slackline::cli::prepare {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kSettingsFile[] = "settings.json";
constexpr char kLockFile[] = "lock";

// Names of files that only this program makes.
bool IsOwn(const std::string& name) {
  static const auto* const kOwn = new std::regex(
      "(train|validation|test)-[0-9]{5,}\\.(images|labels)\\.npy(\\.tmp)?|(index\\.json|skipped\\.csv)(\\.tmp)?");
  return name == kPartialFolder || std::regex_match(name, *kOwn);
}

// What differs, in words; empty for nothing.
std::string Difference(const Json& before, const Json& now) {
  const auto type = [](const Json& settings) { return settings.value(kTypeSetting, Json("uint8")); };
  if (type(before) != type(now)) {
    return absl::StrCat("--dtype was ", DumpJson(type(before)), " and is now ", DumpJson(type(now)));
  }
  const auto tile = [](const Json& settings) { return settings.value(kTileSetting, Json("none")); };
  if (tile(before) != tile(now)) {
    return absl::StrCat("--tile was ", DumpJson(tile(before)), " and is now ", DumpJson(tile(now)));
  }
  for (const auto& [key, value] : now.items()) {
    const auto found = before.find(key);
    if (found == before.end()) return absl::StrCat(key, " is new");
    if (*found == value) continue;
    if (key == "source") return "the source has other files, or files that were changed since";
    return absl::StrCat(key, " was ", DumpJson(*found), " and is now ", DumpJson(value));
  }
  return "";
}

// The settings that the folder was made with; null where there are none.
Json SettingsIn(const std::string& folder, bool& whole) {
  const auto index = images::ReadPreparedIndex(folder);
  whole = index.ok();
  if (whole) return Json::parse(index->settings, nullptr, /*allow_exceptions=*/false);
  const auto text = ReadWhole(absl::StrCat(folder, "/", kPartialFolder, "/", kSettingsFile));
  return text.ok() ? Json::parse(*text, nullptr, /*allow_exceptions=*/false) : Json();
}

}  // namespace

absl::StatusOr<OutputFolder> OutputFolder::Open(const std::string& folder, const std::string& settings,
                                                bool overwrite) {
  OutputFolder output(folder);
  absl::Status status = output.FindState(settings, overwrite);
  if (!status.ok()) return status;
  return output;
}

OutputFolder::OutputFolder(OutputFolder&& other) noexcept
    : folder_(std::move(other.folder_)), state_(other.state_), lock_(std::exchange(other.lock_, -1)) {}

OutputFolder::~OutputFolder() {
  if (lock_ >= 0) ::close(lock_);
}

std::string OutputFolder::RecordPath(const std::string& stem) const {
  return absl::StrCat(folder_, "/", kPartialFolder, "/", stem, ".json");
}

void OutputFolder::RemovePartial() {
  std::error_code error;
  fs::remove_all(fs::path(folder_) / kPartialFolder, error);
}

absl::Status OutputFolder::Lock() {
  std::error_code error;
  const fs::path partial = fs::path(folder_) / kPartialFolder;
  fs::create_directories(partial, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot make ", partial.string(), ": ", error.message()));
  const std::string path = partial / kLockFile;
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) return absl::UnavailableError(absl::StrCat("cannot make ", path, ": ", std::strerror(errno)));
  // File systems without locks say so in other words: there it is up to the user.
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return absl::UnavailableError(absl::StrCat("another `slackline prepare` writes to ", folder_));
  }
  return absl::OkStatus();
}

absl::Status OutputFolder::FindState(const std::string& settings, bool overwrite) {
  std::error_code error;
  std::vector<fs::path> own;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!IsOwn(name)) {
      return absl::FailedPreconditionError(
          absl::StrCat("found ", name, " in ", folder_, "; allowed is a new or empty folder, or prepared images"));
    }
    own.push_back(it->path());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return absl::UnavailableError(absl::StrCat("cannot list ", folder_, ": ", error.message()));
  }
  bool whole = false;
  const Json before = SettingsIn(folder_, whole);
  const std::string difference = before.is_object() ? Difference(before, Json::parse(settings)) : "";
  const bool usable = before.is_object() && difference.empty();
  if (!usable && !own.empty() && !overwrite) {
    const std::string what = before.is_object() ? "was begun with other settings: " + difference
                                                : "has files of an attempt whose settings are not known";
    return absl::FailedPreconditionError(
        absl::StrCat(folder_, " ", what, "; --overwrite begins anew, and another folder leaves it as it is"));
  }
  if (absl::Status locked = Lock(); !locked.ok()) return locked;
  if (usable && !overwrite) {
    state_ = whole ? State::kWhole : State::kPartial;
    return absl::OkStatus();
  }
  for (const fs::path& path : own) {
    if (path.filename() == kPartialFolder) {
      for (const auto& entry : fs::directory_iterator(path, error)) {
        if (entry.path().filename() != kLockFile) fs::remove(entry.path(), error);
      }
    } else if (fs::remove(path, error); error) {
      return absl::UnavailableError(absl::StrCat("cannot remove ", path.string(), ": ", error.message()));
    }
  }
  return Begin(settings);
}

absl::Status OutputFolder::Begin(const std::string& settings) {
  state_ = State::kNew;
  return WriteText(absl::StrCat(folder_, "/", kPartialFolder, "/", kSettingsFile), settings);
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  DurableFile file(path);
  absl::Status status = file.Open();
  if (status.ok()) status = file.Write(text.data(), text.size());
  if (status.ok()) status = file.Commit();
  return status;
}

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) return absl::UnavailableError(absl::StrCat("cannot read ", path));
  return text;
}

}  // namespace slackline::cli::prepare
