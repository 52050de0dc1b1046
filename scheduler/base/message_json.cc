#include "scheduler/base/message_json.h"

#include <cmath>
#include <cstdlib>

#include <google/protobuf/descriptor.h>
#include <nlohmann/json.hpp>
#include "absl/strings/str_format.h"
#include "common/text/json_text.h"

namespace slackline::scheduler {
namespace {

using Json = nlohmann::ordered_json;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

Json Rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(absl::StrFormat("%.6g", value).c_str(), nullptr);
}

Json ObjectOf(const Message& message);

Json SingleOf(const Message& message, const FieldDescriptor* field) {
  const Reflection& from = *message.GetReflection();
  if (field->has_presence() && !from.HasField(message, field)) return nullptr;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return from.GetUInt32(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return from.GetUInt64(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return from.GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Rounded(from.GetDouble(message, field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return from.GetBool(message, field);
    case FieldDescriptor::CPPTYPE_STRING:
      return from.GetString(message, field);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ObjectOf(from.GetMessage(message, field));
    default:
      return nullptr;
  }
}

Json ArrayOf(const Message& message, const FieldDescriptor* field) {
  const Reflection& from = *message.GetReflection();
  Json array = Json::array();
  for (int i = 0; i < from.FieldSize(message, field); ++i) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
      array.push_back(Rounded(from.GetRepeatedDouble(message, field, i)));
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      array.push_back(from.GetRepeatedString(message, field, i));
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      array.push_back(ObjectOf(from.GetRepeatedMessage(message, field, i)));
    }
  }
  return array;
}

Json ObjectOf(const Message& message) {
  Json object = Json::object();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    object[field->name()] = field->is_repeated() ? ArrayOf(message, field) : SingleOf(message, field);
  }
  return object;
}

}  // namespace

std::string ToJson(const Message& message) { return DumpJson(ObjectOf(message)); }

}  // namespace slackline::scheduler
