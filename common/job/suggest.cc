#include "common/job/suggest.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace slackline::job_file {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;

// Levenshtein's distance: insertions, deletions and changes of one letter each.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row.back();
}

// Full key of the first field called `name` anywhere below `section`.
std::string FindElsewhere(const std::string& name, const Descriptor& section, const std::string& prefix) {
  for (int i = 0; i < section.field_count(); ++i) {
    const FieldDescriptor& field = *section.field(i);
    const std::string key = absl::StrCat(prefix, field.name());
    if (field.name() == name) return key;
    if (field.message_type() == nullptr || field.is_map()) continue;
    const std::string below =
        FindElsewhere(name, *field.message_type(), absl::StrCat(key, field.is_repeated() ? "[]." : "."));
    if (!below.empty()) return below;
  }
  return "";
}

}  // namespace

std::string NearestKey(const std::string& name, const Descriptor& section, const std::string& prefix,
                       const Descriptor& root) {
  constexpr size_t kNameMax = 64;
  if (name.size() > kNameMax) return "";
  std::string wanted = absl::AsciiStrToLower(name);
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  std::string nearest;
  size_t least = std::max<size_t>(2, wanted.size() / 3) + 1;
  for (int i = 0; i < section.field_count(); ++i) {
    const std::string known(section.field(i)->name());
    const size_t distance = Distance(wanted, known);
    // Two letters changed in a word of two is another word.
    if (distance < least && distance < known.size()) {
      least = distance;
      nearest = absl::StrCat(prefix, known);
    }
  }
  if (nearest.empty() || least > 1) {
    const std::string elsewhere = FindElsewhere(wanted, root, "");
    if (!elsewhere.empty()) return elsewhere;
  }
  return nearest;
}

}  // namespace slackline::job_file
