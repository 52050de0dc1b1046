#include "scheduler/service/scrape_targets.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/text/json_text.h"
#include "scheduler/record/run_folder.h"

namespace slackline::scheduler {

std::string ToFileSd(const std::string& job, const std::string& run, const std::vector<ScrapeTarget>& targets) {
  using Json = nlohmann::ordered_json;
  Json groups = Json::array();
  for (const ScrapeTarget& target : targets) {
    groups.push_back(
        {{"targets", Json::array({target.address})},
         {"labels", {{"slackline_job", job}, {"run", run}, {"process", target.process}, {"role", target.role}}}});
  }
  return DumpJson(groups, 2) + "\n";
}

std::string SharedTargetsFile(const std::string& folder, const std::string& job, const std::string& run_folder) {
  // FNV-1a: the same for the same folder, whoever asks.
  uint32_t hash = 2166136261u;
  for (const char letter : run_folder) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619u;
  std::string run = RunName(run_folder);
  // Prometheus looks for *.json.
  for (char& letter : run) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(letter)) && letter != '-' && letter != '_' && letter != '.')
      letter = '_';
  }
  return absl::StrCat(folder, "/", job, "-", run, "-", absl::Hex(hash, absl::kZeroPad8), ".json");
}

namespace {

absl::Status ReplaceTargets(const std::string& file, const std::string& text) {
  const std::string draft = file + ".new";
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(file).parent_path(), error);
  std::ofstream out(draft);
  out << text << std::flush;
  if (!out) return absl::UnavailableError(absl::StrCat("cannot write ", draft));
  out.close();
  std::filesystem::rename(draft, file, error);
  return error ? absl::UnavailableError(absl::StrCat("cannot write ", file, ": ", error.message())) : absl::OkStatus();
}

}  // namespace

ScrapeTargets::ScrapeTargets(const std::string& run_folder, std::string job, std::string own, const std::string& shared)
    : file_(run_folder + "/prometheus/targets.json"),
      shared_(shared.empty() ? "" : SharedTargetsFile(shared, job, run_folder)),
      job_(std::move(job)),
      run_(RunName(run_folder)),
      own_(std::move(own)) {}

absl::Status ScrapeTargets::Write(std::vector<ScrapeTarget> targets) {
  if (!own_.empty()) targets.insert(targets.begin(), {own_, "scheduler", "scheduler"});
  return Put(ToFileSd(job_, run_, targets));
}

absl::Status ScrapeTargets::Clear() {
  absl::Status status = Put(ToFileSd(job_, run_, {}));
  std::error_code error;
  if (!shared_.empty() && !std::filesystem::remove(shared_, error) && error) {
    status.Update(absl::UnavailableError(absl::StrCat("cannot remove ", shared_, ": ", error.message())));
  }
  return status;
}

absl::Status ScrapeTargets::Put(const std::string& text) {
  if (text == written_) return absl::OkStatus();
  absl::Status status = ReplaceTargets(file_, text);
  if (!shared_.empty()) status.Update(ReplaceTargets(shared_, text));
  if (status.ok()) written_ = text;
  return status;
}

}  // namespace slackline::scheduler
