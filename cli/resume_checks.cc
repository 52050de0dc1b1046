#include "cli/resume_checks.h"

#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/value.h"

namespace slackline::cli {
namespace {

// As the job file writes it, its default where it is not set.
std::string FieldText(const job::Model& model, const google::protobuf::FieldDescriptor& field) {
  if (!field.is_repeated()) return job_file::ScalarText(model, field);
  std::vector<std::string> items;
  for (int i = 0; i < model.GetReflection()->FieldSize(model, &field); ++i) {
    items.push_back(job_file::ScalarText(model, field, i));
  }
  return absl::StrCat("[", absl::StrJoin(items, ","), "]");
}

}  // namespace

absl::Status CheckModelKept(const job::Job& before, const job::Job& after) {
  std::vector<std::string> mistakes;
  const google::protobuf::Descriptor& fields = *job::Model::descriptor();
  for (int i = 0; i < fields.field_count(); ++i) {
    const std::string kept = FieldText(before.model(), *fields.field(i));
    const std::string found = FieldText(after.model(), *fields.field(i));
    if (found == kept) continue;
    mistakes.push_back(absl::StrCat("model.", fields.field(i)->name(), ": found ", found, "; allowed is ", kept,
                                    ", as the checkpoints of the run have it"));
  }
  return mistakes.empty() ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrJoin(mistakes, "\n"));
}

}  // namespace slackline::cli
