// Job files: refused with a reason, or read as a job that stays the same when it is written out and read again.
#include <string>

#include "absl/strings/match.h"
#include "common/base/check.h"
#include "common/job/job_file.h"
#include "tests/fuzz/bytes_input.h"

namespace slackline::fuzz {
namespace {

// A first line "--set KEY=VALUE" is an override; the rest is the file.
absl::StatusOr<job::Job> Read(std::string text) {
  static constexpr absl::string_view kSet = "--set ";
  if (!absl::StartsWith(text, kSet)) return ParseJob(text, "job.yaml");
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string assignment = text.substr(kSet.size(), end - kSet.size());
  return ParseJob(text.substr(std::min(end + 1, text.size())), "job.yaml", {assignment});
}

}  // namespace
}  // namespace slackline::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto job = slackline::fuzz::Read(std::string(data, data + size));
  if (!job.ok()) {
    SLACKLINE_CHECK(absl::IsInvalidArgument(job.status()) && !job.status().message().empty());
    return 0;
  }
  const auto again = slackline::ParseJob(slackline::ToYaml(*job), "written");
  SLACKLINE_CHECK(again.ok());
  SLACKLINE_CHECK(slackline::ToYaml(*again) == slackline::ToYaml(*job));
  SLACKLINE_CHECK(slackline::Fingerprint(*again) == slackline::Fingerprint(*job));
  return 0;
}
