#include <utility>

#include "absl/strings/str_cat.h"
#include "images/formats/formats.h"
#include "images/pictures/picture_data.h"

namespace slackline::images {
namespace {

template <pictures::SourceKind kKind>
absl::StatusOr<JobData> OpenPictures(const DataRequest& request, ImagePeers* /*peers*/) {
  const std::string& path = request.settings.path();
  absl::StatusOr<pictures::PictureData> data =
      pictures::OpenPictures(path, {.kind = kKind,
                                    .form = FormWishOf(request.settings.decode()),
                                    .evaluation_split = request.evaluation_split,
                                    .train_images_max = request.settings.train_images_max(),
                                    .classes = request.classes});
  if (!data.ok()) return data.status();
  if (data->class_names.size() != request.classes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", data->class_names.size(), " classes; model.classes is ", request.classes));
  }
  return JobData{.train = std::move(data->train),
                 .test = std::move(data->test),
                 .class_names = std::move(data->class_names),
                 .fingerprint = 0};
}

}  // namespace

pictures::FormWish FormWishOf(const job::Decode& decode) {
  return {.size = decode.size(),
          .grey = decode.grey(),
          .fit = decode.fit() == job::Decode::CROP ? pictures::Fit::kCrop : pictures::Fit::kStretch,
          .size_key = "data.decode.size"};
}

const DataFormat kFolderFormat = {.format = job::Data::FOLDER, .open = OpenPictures<pictures::SourceKind::kFolder>};
const DataFormat kWebdatasetFormat = {.format = job::Data::WEBDATASET,
                                      .open = OpenPictures<pictures::SourceKind::kWebdataset>};

}  // namespace slackline::images
