#include "common/rpc/message_text.h"

#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>
#include "common/text/utf8.h"

namespace slackline::rpc {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

bool IsValid(const std::string& text) { return text.size() <= kFreeTextBytesMax && IsUtf8(text); }

std::vector<const FieldDescriptor*> FieldsOf(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  return fields;
}

bool IsText(const FieldDescriptor& field) { return field.type() == FieldDescriptor::TYPE_STRING; }
bool IsMessage(const FieldDescriptor& field) { return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE; }

bool FieldIsValid(const Message& message, const FieldDescriptor* field) {
  const Reflection& reflection = *message.GetReflection();
  std::string scratch;
  if (!field->is_repeated()) {
    if (IsText(*field)) return IsValid(reflection.GetStringReference(message, field, &scratch));
    return !IsMessage(*field) || HasValidText(reflection.GetMessage(message, field));
  }
  const int size = IsText(*field) || IsMessage(*field) ? reflection.FieldSize(message, field) : 0;
  for (int i = 0; i < size; ++i) {
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
  for (const FieldDescriptor* const field : FieldsOf(message)) {
    if (!FieldIsValid(message, field)) return false;
  }
  return true;
}

void MendText(Message& message) {
  for (const FieldDescriptor* const field : FieldsOf(message)) {
    if (!FieldIsValid(message, field)) MendField(message, field);
  }
}

}  // namespace slackline::rpc
