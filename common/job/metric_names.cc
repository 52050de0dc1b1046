#include "common/job/metric_names.h"

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/text/utf8.h"

namespace slackline {

absl::Status CheckMetricName(absl::string_view name) {
  const auto allowed = [](char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_'; };
  if (!name.empty() && name.size() <= kMetricNameMax && absl::ascii_islower(name[0]) && absl::c_all_of(name, allowed)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("found \"", ValidText(name.substr(0, 2 * kMetricNameMax)),
                                                 "\"; allowed is a name of at most ", kMetricNameMax,
                                                 " characters: a to z, then a to z, 0 to 9 and _"));
}

}  // namespace slackline
