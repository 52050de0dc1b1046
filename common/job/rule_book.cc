#include "common/job/rule_book.h"

#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/job/value.h"

namespace slackline::job_file {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

// True if the field is there with another value than its default.
bool Differs(const Message& section, const FieldDescriptor& field) {
  const Reflection& reflection = *section.GetReflection();
  if (field.is_repeated()) return reflection.FieldSize(section, &field) > 0;
  if (!reflection.HasField(section, &field)) return false;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(section, &field) != field.default_value_bool();
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.GetUInt32(section, &field) != field.default_value_uint32();
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.GetEnumValue(section, &field) != field.default_value_enum()->number();
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.GetString(section, &field) != field.default_value_string();
    default:
      return reflection.GetDouble(section, &field) != field.default_value_double();
  }
}

// As --set takes it; of the types that Differs() knows.
std::string DefaultText(const FieldDescriptor& field) {
  if (field.is_repeated()) return "[]";
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return field.default_value_bool() ? "true" : "false";
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat(field.default_value_uint32());
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumName(*field.default_value_enum());
    case FieldDescriptor::CPPTYPE_STRING:
      return std::string(field.default_value_string());
    default:
      return NumberText(field.default_value_double());
  }
}

}  // namespace

void RuleBook::NeedsOther(const Message& section, const std::string& key, const std::string& needed,
                          const std::string& actual) {
  const FieldDescriptor& field = *section.GetDescriptor()->FindFieldByName(key.substr(key.rfind('.') + 1));
  if (Differs(section, field)) {
    Refuse(
        key, absl::StrCat("a value together with ", actual),
        absl::StrCat("only with ", needed, " (add --set ", key, "=", DefaultText(field), " to take the default back)"));
  }
}

void RuleBook::Understood(const std::string& key, const absl::Status& read) {
  if (read.ok()) return;
  const std::vector<std::string> parts = absl::StrSplit(read.message(), absl::MaxSplits("; allowed is ", 1));
  Refuse(key, parts.front().substr(sizeof("found ") - 1), parts.back());
}

void RuleBook::Refuse(const std::string& key, const std::string& found, const std::string& allowed,
                      const std::string& section) {
  auto origin = origins_.find(key);
  if (origin == origins_.end()) origin = origins_.find(section);
  mistakes_.Add(origin == origins_.end() ? name_ : origin->second, key, found, allowed);
}

std::string RuleBook::Quoted(const std::string& text) {
  return absl::StrCat("'", absl::Utf8SafeCEscape(text.substr(0, kNameMax)), "'");
}

std::string RuleBook::Count(int count, const std::string& noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace slackline::job_file
