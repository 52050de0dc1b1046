#include "scheduler/record/power_file.h"

#include <filesystem>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "common/text/csv_text.h"

namespace slackline::scheduler {
namespace {

constexpr char kPowerHeader[] = "time_s,node,device,watts";

}  // namespace

absl::Status PowerFile::Add(const std::vector<PowerRow>& rows) {
  if (rows.empty() || full_) return absl::OkStatus();
  if (lines_ == nullptr) {
    absl::StatusOr<std::unique_ptr<LineFile>> lines = LineFile::Open(path_, kPowerHeader);
    if (!lines.ok()) return lines.status();
    lines_ = *std::move(lines);
    std::error_code error;
    const uint64_t size = std::filesystem::file_size(path_, error);
    bytes_ = error ? 0 : size;
  }
  absl::Status status;
  for (const PowerRow& row : rows) {
    std::string line =
        absl::StrFormat("%.3f,%s,%s,%.6g", row.time_s, CsvText(row.node), CsvText(row.device), row.watts);
    bytes_ += line.size() + 1;
    full_ = bytes_ > bytes_max_;
    if (full_) return status;
    status.Update(lines_->Add(std::move(line)));
  }
  return status;
}

}  // namespace slackline::scheduler
