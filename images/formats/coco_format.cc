#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "images/formats/formats.h"

namespace slackline::images {
namespace {

absl::StatusOr<JobData> OpenCoco(const DataRequest& request, ImagePeers* /*peers*/) {
  const coco::CocoOptions options = CocoOptionsOf(request);
  if (options.evaluation.annotations.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no split ", request.evaluation_split, ": data.coco.",
                                                   request.evaluation_split, "_annotations names no file"));
  }
  absl::StatusOr<coco::CocoData> data = coco::OpenCoco(options);
  if (!data.ok()) return data.status();
  return JobData{.train = std::move(data->train),
                 .test = std::move(data->test),
                 .class_names = std::move(data->class_names),
                 .fingerprint = data->fingerprint};
}

absl::Status CheckCocoFiles(const job::Data& data, uint32_t /*classes*/) {
  const std::filesystem::path folder = data.path();
  const bool test = data.evaluation_split() == job::Data::TEST;
  const std::string split = test ? "test" : "validation";
  const job::Coco& coco = data.coco();
  const std::pair<std::string, std::string> files[] = {
      {"data.coco.train_annotations", coco.train_annotations()},
      {absl::StrCat("data.coco.", split, "_annotations"),
       test ? coco.test_annotations() : coco.validation_annotations()}};
  const std::pair<std::string, std::string> folders[] = {
      {"data.coco.train_images", coco.train_images()},
      {absl::StrCat("data.coco.", split, "_images"), test ? coco.test_images() : coco.validation_images()}};
  std::error_code error;
  for (const auto& [key, path] : files) {
    if (std::filesystem::is_regular_file(folder / path, error)) continue;
    return absl::NotFoundError(
        absl::StrCat(key, ": found no file ", (folder / path).string(), "; allowed is one in COCO's format"));
  }
  for (const auto& [key, path] : folders) {
    if (std::filesystem::is_directory(folder / path, error)) continue;
    return absl::NotFoundError(
        absl::StrCat(key, ": found no folder ", (folder / path).string(), "; allowed is one of pictures"));
  }
  return absl::OkStatus();
}

}  // namespace

coco::CocoOptions CocoOptionsOf(const DataRequest& request) {
  const auto below = [&](const std::string& path) {
    const bool there = path.empty() || path.front() == '/';
    return there ? path : absl::StrCat(request.settings.path(), "/", path);
  };
  const job::Coco& coco = request.settings.coco();
  const bool test = request.evaluation_split == "test";
  return {.train = {below(coco.train_images()), below(coco.train_annotations())},
          .evaluation = {below(test ? coco.test_images() : coco.validation_images()),
                         below(test ? coco.test_annotations() : coco.validation_annotations())},
          .masks = coco.masks(),
          .classes = request.classes,
          .train_images_max = request.settings.train_images_max()};
}

const DataFormat kCocoFormat = {.format = job::Data::COCO, .open = OpenCoco, .check = CheckCocoFiles};

}  // namespace slackline::images
