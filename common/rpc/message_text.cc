#include "common/rpc/message_text.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <google/protobuf/descriptor.h>
#include "absl/container/flat_hash_map.h"
#include "common/text/utf8.h"

namespace slackline::rpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

bool IsValid(const std::string& text) { return text.size() <= kFreeTextBytesMax && IsUtf8(text); }

bool IsText(const FieldDescriptor& field) { return field.type() == FieldDescriptor::TYPE_STRING; }
bool IsMessage(const FieldDescriptor& field) { return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE; }

// Fields with text, at any depth, by type of message; none while they are looked for. Most of a heartbeat's fields are
// numbers, which need no look.
using TextFields = absl::flat_hash_map<const Descriptor*, std::optional<std::vector<const FieldDescriptor*>>>;

// Returns whether messages of this type may contain text, and adds it and all types within it to `known`.
bool FindText(const Descriptor& type, TextFields& known) {
  const auto [found, is_new] = known.try_emplace(&type);
  if (!is_new) return !found->second || !found->second->empty();  // a type within itself may
  std::vector<const FieldDescriptor*> fields;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (IsText(field) || (IsMessage(field) && FindText(*field.message_type(), known))) fields.push_back(&field);
  }
  const bool has_text = !fields.empty();
  known[&type] = std::move(fields);
  return has_text;
}

const std::vector<const FieldDescriptor*>& TextFieldsOf(const Message& message) {
  thread_local TextFields known;
  FindText(*message.GetDescriptor(), known);
  return *known[message.GetDescriptor()];
}

bool FieldIsValid(const Message& message, const FieldDescriptor* field) {
  const Reflection& reflection = *message.GetReflection();
  std::string scratch;
  if (!field->is_repeated()) {
    if (IsText(*field)) return IsValid(reflection.GetStringReference(message, field, &scratch));
    return !reflection.HasField(message, field) || HasValidText(reflection.GetMessage(message, field));
  }
  for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
    const bool valid = IsText(*field) ? IsValid(reflection.GetRepeatedStringReference(message, field, i, &scratch))
                                      : HasValidText(reflection.GetRepeatedMessage(message, field, i));
    if (!valid) return false;
  }
  return true;
}

void MendField(Message& message, const FieldDescriptor* field) {
  const Reflection& reflection = *message.GetReflection();
  if (!field->is_repeated()) {
    if (IsMessage(*field)) return MendText(*reflection.MutableMessage(&message, field));
    return reflection.SetString(&message, field, ValidText(reflection.GetString(message, field)));
  }
  for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
    if (IsMessage(*field)) {
      MendText(*reflection.MutableRepeatedMessage(&message, field, i));
    } else {
      reflection.SetRepeatedString(&message, field, i, ValidText(reflection.GetRepeatedString(message, field, i)));
    }
  }
}

}  // namespace

bool HasValidText(const Message& message) {
  for (const FieldDescriptor* const field : TextFieldsOf(message)) {
    if (!FieldIsValid(message, field)) return false;
  }
  return true;
}

void MendText(Message& message) {
  for (const FieldDescriptor* const field : TextFieldsOf(message)) {
    if (!FieldIsValid(message, field)) MendField(message, field);
  }
}

}  // namespace slackline::rpc
