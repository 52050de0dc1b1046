#include "common/job/writer.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/job/value.h"

namespace slackline::job_file {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

std::string List(const Message& message, const FieldDescriptor& field) {
  std::string out = "[";
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    absl::StrAppend(&out, i == 0 ? "" : ", ", ScalarText(message, field, i));
  }
  return out + "]";
}

// In the order of the keys, so that equal messages give equal text.
std::string Map(const Message& message, const FieldDescriptor& field) {
  const FieldDescriptor &key = *field.message_type()->map_key(), &value = *field.message_type()->map_value();
  const Reflection& reflection = *message.GetReflection();
  std::map<uint32_t, std::string> entries;
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
    entries[entry.GetReflection()->GetUInt32(entry, &key)] = ScalarText(entry, value);
  }
  return absl::StrCat("{", absl::StrJoin(entries, ", ", absl::PairFormatter(": ")), "}");
}

void WriteSection(const Message& message, const std::string& indent, std::string& out);

// Each item begins behind a dash, its keys one below the other.
void WriteItems(const Message& message, const FieldDescriptor& field, const std::string& indent, std::string& out) {
  const int count = message.GetReflection()->FieldSize(message, &field);
  if (count == 0) out += " []";
  out += "\n";
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&out, indent, "  -\n");
    WriteSection(message.GetReflection()->GetRepeatedMessage(message, &field, i), indent + "    ", out);
  }
}

void WriteSection(const Message& message, const std::string& indent, std::string& out) {
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (!field.is_repeated() && !message.GetReflection()->HasField(message, &field)) continue;
    absl::StrAppend(&out, indent, field.name(), ":");
    if (field.is_map()) {
      absl::StrAppend(&out, " ", Map(message, field), "\n");
    } else if (field.message_type() != nullptr && field.is_repeated()) {
      WriteItems(message, field, indent, out);
    } else if (field.message_type() != nullptr) {
      out += "\n";
      WriteSection(message.GetReflection()->GetMessage(message, &field), indent + "  ", out);
    } else {
      absl::StrAppend(&out, " ", field.is_repeated() ? List(message, field) : ScalarText(message, field), "\n");
    }
  }
}

void AddSettings(const Message& message, const std::string& before, std::vector<SettingView>& settings) {
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const std::string key = before + field.name();
    const bool is_section = field.message_type() != nullptr && !field.is_map();
    if (is_section && !field.is_repeated()) {
      AddSettings(reflection.GetMessage(message, &field), key + ".", settings);
    } else if (is_section && reflection.FieldSize(message, &field) > 0) {
      for (int item = 0; item < reflection.FieldSize(message, &field); ++item) {
        AddSettings(reflection.GetRepeatedMessage(message, &field, item), absl::StrCat(key, "[", item, "]."), settings);
      }
    } else {
      const std::string value = is_section            ? "[]"
                                : field.is_map()      ? Map(message, field)
                                : field.is_repeated() ? List(message, field)
                                                      : ScalarText(message, field);
      settings.push_back({.key = key, .value = value});
    }
  }
}

// Reads what a field that is not set stands for, and sets it to that.
void SetDefault(Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(&message, &field, field.default_value_bool());
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.SetUInt32(&message, &field, field.default_value_uint32());
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.SetUInt64(&message, &field, field.default_value_uint64());
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.SetDouble(&message, &field, field.default_value_double());
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.SetEnum(&message, &field, field.default_value_enum());
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.SetString(&message, &field, std::string(field.default_value_string()));
    default:
      SLACKLINE_CHECK(!"job.proto uses a type that the job file does not know");
  }
}

}  // namespace

void SetDefaults(Message& message) {
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (field.is_map()) continue;  // entries are whole
    if (field.is_repeated()) {
      const int items = field.message_type() == nullptr ? 0 : reflection.FieldSize(message, &field);
      for (int item = 0; item < items; ++item) SetDefaults(*reflection.MutableRepeatedMessage(&message, &field, item));
    } else if (field.message_type() != nullptr) {
      SetDefaults(*reflection.MutableMessage(&message, &field));
    } else if (!reflection.HasField(message, &field)) {
      SetDefault(message, field);
    }
  }
}

void ClearDefaults(Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const Message& none = *reflection.GetMessageFactory()->GetPrototype(message.GetDescriptor());
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    // Items and entries are whole.
    if (field.is_repeated() || !reflection.HasField(message, &field)) continue;
    if (field.message_type() != nullptr) {
      Message& section = *reflection.MutableMessage(&message, &field);
      ClearDefaults(section);
      if (section.ByteSizeLong() == 0) reflection.ClearField(&message, &field);
    } else if (ScalarText(message, field) == ScalarText(none, field)) {
      reflection.ClearField(&message, &field);
    }
  }
}

std::vector<SettingView> Flatten(const Message& message) {
  std::vector<SettingView> settings;
  AddSettings(message, "", settings);
  return settings;
}

std::string WriteYaml(const job::Job& job) {
  std::string out;
  WriteSection(job, "", out);
  return out;
}

}  // namespace slackline::job_file
