#include "common/job/suggest.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/nearest_word.h"

namespace slackline::job_file {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;

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
  std::vector<std::string> known;
  for (int i = 0; i < section.field_count(); ++i) known.emplace_back(section.field(i)->name());
  size_t letters = 0;
  const std::string nearest = NearestWord(name, known, &letters);
  if (nearest.empty() || letters > 1) {
    std::string wanted = absl::AsciiStrToLower(name);
    std::replace(wanted.begin(), wanted.end(), '-', '_');
    const std::string elsewhere = FindElsewhere(wanted, root, "");
    if (!elsewhere.empty()) return elsewhere;
  }
  return nearest.empty() ? "" : prefix + nearest;
}

}  // namespace slackline::job_file
