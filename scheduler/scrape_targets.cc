#include "scheduler/scrape_targets.h"

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"

namespace slackline::scheduler {

std::string ToFileSd(const std::string& job, const std::vector<ScrapeTarget>& targets) {
  using Json = nlohmann::ordered_json;
  Json groups = Json::array();
  for (const ScrapeTarget& target : targets) {
    groups.push_back({{"targets", Json::array({target.address})},
                      {"labels", {{"slackline_job", job}, {"process", target.process}, {"role", target.role}}}});
  }
  return groups.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

ScrapeTargets::ScrapeTargets(const std::string& run_folder, std::string job, std::string own)
    : folder_(run_folder + "/prometheus"), job_(std::move(job)), own_(std::move(own)) {}

absl::Status ScrapeTargets::Write(std::vector<ScrapeTarget> targets) {
  if (!own_.empty()) targets.insert(targets.begin(), {own_, "scheduler", "scheduler"});
  return Put(ToFileSd(job_, targets));
}

absl::Status ScrapeTargets::Clear() { return Put(ToFileSd(job_, {})); }

absl::Status ScrapeTargets::Put(const std::string& text) {
  if (text == written_) return absl::OkStatus();
  const std::string file = folder_ + "/targets.json", draft = file + ".new";
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  std::ofstream out(draft);
  out << text << std::flush;
  if (!out) return absl::UnavailableError(absl::StrCat("cannot write ", draft));
  out.close();
  std::filesystem::rename(draft, file, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot write ", file, ": ", error.message()));
  written_ = text;
  return absl::OkStatus();
}

}  // namespace slackline::scheduler
