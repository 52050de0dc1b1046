#include "cli/run/resume_checks.h"

#include <optional>
#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/job/job_kinds.h"
#include "common/job/value.h"
#include "images/formats/data_format.h"

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

absl::Status CheckImagesKept(uint64_t samples, uint64_t fingerprint, const job::Job& after) {
  if (RunsScripts(after) || samples == 0) return absl::OkStatus();
  const uint64_t most = after.data().train_images_max();
  if (const auto look = images::FormatOf(after.data()).look; look != nullptr) {
    const std::optional<images::TrainingImages> found = look(after.data());
    if (!found) return absl::OkStatus();  // another check says what is wrong with the file
    if (found->count == samples) {
      const std::string kept = absl::StrFormat("%016x", fingerprint);
      if (fingerprint == 0 || found->fingerprint == fingerprint || after.data().replaces() == kept)
        return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat("data.path: found training images in ", after.data().path(), " with the fingerprint ",
                       absl::StrFormat("%016x", found->fingerprint), "; allowed is ", kept,
                       ", that of the data which the checkpoint was trained on: they were prepared anew since. To go "
                       "on with the others in their place: --set data.replaces=",
                       kept));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("data.path: found ", found->count, " training images in ", after.data().path(),
                     most == 0 ? "" : absl::StrCat(" (data.train_images_max: ", most, ")"), "; allowed are ", samples,
                     ", as the checkpoint has them"));
  }
  if (most == 0 || most >= samples) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("data.train_images_max: found ", most, "; allowed is ", samples,
                                                 ", as many images as the checkpoint has"));
}

}  // namespace slackline::cli
