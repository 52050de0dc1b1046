#include "common/job/data_formats.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/value.h"

namespace slackline::job_file {

std::string FormatsThatTake(DataSettings settings) {
  std::vector<std::string> names;
  for (const DataFormatRow& row : kDataFormats) {
    if (!Takes(row.format, settings)) continue;
    names.push_back(EnumName(*job::Data::Format_descriptor()->FindValueByNumber(row.format)));
  }
  const std::string last = names.back();
  names.pop_back();
  return absl::StrCat("data.format: ", absl::StrJoin(names, ", "), names.empty() ? "" : " or ", last);
}

}  // namespace slackline::job_file
