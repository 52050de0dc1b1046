#include "images/formats/data_format.h"

#include "absl/algorithm/container.h"
#include "common/check.h"
#include "images/formats/formats.h"

namespace slackline::images {

const DataFormat& FormatOf(const job::Data& data) {
  static constexpr const DataFormat* kFormats[] = {&kIdxFormat, &kPreparedFormat, &kFolderFormat, &kWebdatasetFormat,
                                                   &kCocoFormat};
  const auto found = absl::c_find_if(kFormats, [&](const DataFormat* one) { return one->format == data.format(); });
  SLACKLINE_CHECK(found != std::end(kFormats));
  return **found;
}

absl::StatusOr<JobData> OpenJobData(const DataRequest& request, ImagePeers* peers) {
  return FormatOf(request.settings).open(request, peers);
}

}  // namespace slackline::images
