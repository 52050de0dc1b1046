#include "cli/service/job_book.h"

#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/log/logging.h"

namespace slackline::cli {
namespace {

constexpr char kJobLetter = 'j';
constexpr char kLastRemoved[] = "last removed";
// Bytes after which the book gives back the space of overwritten jobs.
constexpr uint64_t kBookTidyBytes = 64 << 20;

// Returns the key of a job. Keys are in the order of the numbers.
std::string KeyOfJob(uint64_t id) { return absl::StrFormat("%c%020d", kJobLetter, id); }

}  // namespace

absl::StatusOr<std::unique_ptr<JobBook>> JobBook::Open(const std::filesystem::path& folder) {
  absl::StatusOr<std::unique_ptr<Database>> database = Database::Open(folder);
  if (!database.ok()) return database.status();
  // Earlier hosts may have overwritten much without giving back its space.
  if (absl::Status tidied = (*database)->Tidy(kJobLetter); !tidied.ok()) return tidied;
  return std::unique_ptr<JobBook>(new JobBook(*std::move(database)));
}

absl::StatusOr<std::vector<wire::ServiceJob>> JobBook::Load() const {
  std::vector<wire::ServiceJob> jobs;
  std::string broken;
  const absl::Status read =
      database_->ForEach(kJobLetter, [&jobs, &broken](absl::string_view key, absl::string_view value) {
        if (!jobs.emplace_back().ParseFromArray(value.data(), static_cast<int>(value.size())))
          broken = std::string(key);
      });
  if (!read.ok()) return read;
  if (!broken.empty()) return absl::DataLossError(absl::StrCat("the job under ", broken, " cannot be parsed"));
  return jobs;
}

absl::Status JobBook::Save(const wire::ServiceJob& job) {
  const std::string bytes = job.SerializeAsString();
  if (absl::Status saved = database_->PutSynced(KeyOfJob(job.id()), bytes); !saved.ok()) return saved;
  Written(bytes.size());
  return absl::OkStatus();
}

absl::Status JobBook::Remove(uint64_t id) {
  const absl::StatusOr<uint64_t> last = LastRemoved();
  if (!last.ok()) return last.status();
  if (id > *last) {
    if (absl::Status noted = database_->PutSynced(kLastRemoved, absl::StrCat(id)); !noted.ok()) return noted;
  }
  return database_->DeleteSynced(KeyOfJob(id));
}

absl::StatusOr<uint64_t> JobBook::LastRemoved() const {
  const absl::StatusOr<std::optional<std::string>> text = database_->Get(kLastRemoved);
  if (!text.ok()) return text.status();
  uint64_t id = 0;
  if (!*text || absl::SimpleAtoi(**text, &id)) return id;
  return absl::DataLossError(absl::StrCat("the last number of a removed job: found '", **text, "'"));
}

void JobBook::Written(uint64_t bytes) {
  bytes_ += bytes;
  if (bytes_ < kBookTidyBytes) return;
  bytes_ = 0;
  // The job itself is saved, so a failure here is only a warning.
  const absl::Status tidied = database_->Tidy(kJobLetter);
  if (!tidied.ok()) log::Warning("cannot give back space of the book of jobs: ", std::string(tidied.message()));
}

}  // namespace slackline::cli
