#include "common/job/value.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "job.pb.h"

namespace slackline::job_file {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;

constexpr size_t kTextShownMax = 60;

// "1_000_000" without its underscores, which may stand between two digits only.
std::optional<std::string> WithoutUnderscores(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const bool between_digits =
        i > 0 && i + 1 < text.size() && absl::ascii_isdigit(text[i - 1]) && absl::ascii_isdigit(text[i + 1]);
    if (!between_digits) return std::nullopt;
  }
  return out;
}

// Decimal numbers only: "0.1", "1e-3", ".5", "1_000"; not "0x10", "010", "inf" or "nan".
std::optional<double> ParseNumber(const std::string& text) {
  const std::optional<std::string> digits = WithoutUnderscores(text);
  if (!digits || digits->empty() || digits->find_first_not_of("0123456789+-.eE") != std::string::npos) {
    return std::nullopt;
  }
  const size_t first = digits->find_first_not_of("+-");
  if (first == std::string::npos || first > 1) return std::nullopt;
  if ((*digits)[first] == '0' && first + 1 < digits->size() && absl::ascii_isdigit((*digits)[first + 1])) {
    return std::nullopt;
  }
  double number = 0;
  if (!absl::SimpleAtod(*digits, &number) || !std::isfinite(number)) return std::nullopt;
  return number;
}

// As ParseNumber(); whole, and exact up to 2^64 - 1 when written without an exponent.
std::optional<uint64_t> ParseWhole(const std::string& text) {
  const std::optional<double> number = ParseNumber(text);
  if (!number || *number < 0 || *number != std::floor(*number)) return std::nullopt;
  uint64_t exact = 0;
  if (absl::SimpleAtoi(*WithoutUnderscores(text), &exact)) return exact;
  constexpr double kExactMax = 9007199254740992;  // 2^53
  if (*number > kExactMax) return std::nullopt;
  return static_cast<uint64_t>(*number);
}

double TypeMax(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return std::numeric_limits<uint32_t>::max();
    case FieldDescriptor::CPPTYPE_UINT64:
      return static_cast<double>(std::numeric_limits<uint64_t>::max());
    default:
      return std::numeric_limits<double>::infinity();
  }
}

// Where the range of a field stands: that of a map's values is the map's own.
const google::protobuf::FieldOptions& RangeOf(const FieldDescriptor& field) {
  const google::protobuf::Descriptor& entry = *field.containing_type();
  if (!entry.options().map_entry() || &field != entry.map_value()) return field.options();
  const google::protobuf::Descriptor& section = *entry.containing_type();
  for (int i = 0; i < section.field_count(); ++i) {
    if (section.field(i)->message_type() == &entry) return section.field(i)->options();
  }
  return field.options();
}

double Least(const FieldDescriptor& field) {
  const google::protobuf::FieldOptions& range = RangeOf(field);
  if (range.HasExtension(job::min)) return range.GetExtension(job::min);
  return field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ? -TypeMax(field) : 0;
}

double Most(const FieldDescriptor& field) {
  const google::protobuf::FieldOptions& range = RangeOf(field);
  return range.HasExtension(job::max) ? range.GetExtension(job::max) : TypeMax(field);
}

bool InRange(const FieldDescriptor& field, double number) { return number >= Least(field) && number <= Most(field); }

// Reads `node` as one kind of value; nullopt if it is no such value or out of range.
std::optional<double> NumberOf(const YamlNode& node, const FieldDescriptor& field) {
  if (node.kind != YamlNode::Kind::kScalar || node.quoted) return std::nullopt;
  const std::optional<double> number = ParseNumber(node.text);
  return number && InRange(field, *number) ? number : std::nullopt;
}

std::optional<uint64_t> WholeOf(const YamlNode& node, const FieldDescriptor& field) {
  if (node.kind != YamlNode::Kind::kScalar || node.quoted) return std::nullopt;
  const std::optional<uint64_t> number = ParseWhole(node.text);
  return number && InRange(field, static_cast<double>(*number)) ? number : std::nullopt;
}

std::optional<bool> BoolOf(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar || node.quoted) return std::nullopt;
  if (node.text == "true") return true;
  if (node.text == "false") return false;
  return std::nullopt;
}

const google::protobuf::EnumValueDescriptor* EnumOf(const YamlNode& node, const FieldDescriptor& field) {
  if (node.kind != YamlNode::Kind::kScalar || node.text != absl::AsciiStrToLower(node.text)) return nullptr;
  return field.enum_type()->FindValueByName(absl::AsciiStrToUpper(node.text));
}

// Sets or appends, by the field's label.
template <typename Value, typename Setter, typename Adder>
void Store(Message& message, const FieldDescriptor& field, Value value, Setter set, Adder add) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  (reflection.*(field.is_repeated() ? add : set))(&message, &field, value);
}

using google::protobuf::Reflection;

// False if `node` does not fit.
bool TrySet(const YamlNode& node, const FieldDescriptor& field, Message& message) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL: {
      const std::optional<bool> value = BoolOf(node);
      if (value) Store(message, field, *value, &Reflection::SetBool, &Reflection::AddBool);
      return value.has_value();
    }
    case FieldDescriptor::CPPTYPE_UINT32: {
      const std::optional<uint64_t> value = WholeOf(node, field);
      if (value) {
        Store(message, field, static_cast<uint32_t>(*value), &Reflection::SetUInt32, &Reflection::AddUInt32);
      }
      return value.has_value();
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      const std::optional<uint64_t> value = WholeOf(node, field);
      if (value) Store(message, field, *value, &Reflection::SetUInt64, &Reflection::AddUInt64);
      return value.has_value();
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const std::optional<double> value = NumberOf(node, field);
      if (value) Store(message, field, *value, &Reflection::SetDouble, &Reflection::AddDouble);
      return value.has_value();
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const google::protobuf::EnumValueDescriptor* value = EnumOf(node, field);
      if (value != nullptr) Store(message, field, value, &Reflection::SetEnum, &Reflection::AddEnum);
      return value != nullptr;
    }
    case FieldDescriptor::CPPTYPE_STRING:
      if (node.kind != YamlNode::Kind::kScalar) return false;
      // Newer versions of protobuf have several functions of these names.
      if (field.is_repeated()) {
        message.GetReflection()->AddString(&message, &field, node.text);
      } else {
        message.GetReflection()->SetString(&message, &field, node.text);
      }
      return true;
    default:
      SLACKLINE_CHECK(!"job.proto uses a type that the job file does not know");
      return false;
  }
}

std::string AllowedNumber(const FieldDescriptor& field) {
  const std::string kind = field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ? "a number" : "a whole number";
  if (std::isinf(Least(field))) return kind;
  if (!RangeOf(field).HasExtension(job::max) && field.cpp_type() != FieldDescriptor::CPPTYPE_UINT32) {
    return absl::StrCat(kind, ", at least ", NumberText(Least(field)));
  }
  return absl::StrCat(kind, " from ", NumberText(Least(field)), " to ", NumberText(Most(field)));
}

std::string AllowedEnum(const FieldDescriptor& field) {
  std::string names;
  for (int i = 0; i < field.enum_type()->value_count(); ++i) {
    absl::StrAppend(&names, i == 0 ? "" : ", ", EnumName(*field.enum_type()->value(i)));
  }
  return field.enum_type()->value_count() == 1 ? names : absl::StrCat("one of ", names);
}

// What to write elsewhere for the value that stands here, in brackets; else nothing.
std::string Elsewhere(const YamlNode& node, const FieldDescriptor& field) {
  const std::string& hint = field.options().GetExtension(job::elsewhere);
  const size_t colon = hint.find(": ");
  if (node.kind != YamlNode::Kind::kScalar || colon == std::string::npos || node.text != hint.substr(0, colon))
    return "";
  return absl::StrCat(" (", hint.substr(colon + 2), ")");
}

bool HasLines(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kScalar && node.text.find_first_of("\r\n") != std::string::npos;
}

// Double-quoted, with YAML's escapes; other bytes stay as they are (UTF-8).
std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      absl::StrAppend(&out, "\\", std::string(1, letter));
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(&out, "\\x%02x", byte);
    } else {
      out += letter;
    }
  }
  return out + "\"";
}

}  // namespace

std::string EnumName(const google::protobuf::EnumValueDescriptor& value) { return absl::AsciiStrToLower(value.name()); }

std::string NumberText(double number) {
  char text[32];
  // Whole numbers of everyday size without an exponent.
  const bool plain = number == std::floor(number) && std::abs(number) < 1e15;
  const auto end = plain ? std::to_chars(text, text + sizeof(text), number, std::chars_format::fixed)
                         : std::to_chars(text, text + sizeof(text), number);
  return std::string(text, end.ptr);
}

std::string Allowed(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return AllowedEnum(field);
    case FieldDescriptor::CPPTYPE_STRING:
      return "text";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (field.is_map()) return "a map in { }";
      return field.is_repeated() ? "a list of sections of keys" : "a section of keys";
    default:
      return AllowedNumber(field);
  }
}

std::string Found(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kList:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a section of keys";
    case YamlNode::Kind::kScalar:
      break;
  }
  const bool cut = node.text.size() > kTextShownMax;
  const std::string text = absl::StrCat(node.text.substr(0, kTextShownMax), cut ? "..." : "");
  return absl::StrCat(node.quoted ? "the text \"" : "'", absl::Utf8SafeCEscape(text), node.quoted ? "\"" : "'");
}

std::string ScalarText(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const bool item = index >= 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat(item ? reflection.GetRepeatedUInt32(message, &field, index)
                               : reflection.GetUInt32(message, &field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat(reflection.GetUInt64(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return NumberText(reflection.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumName(*field.enum_type()->FindValueByNumber(
          item ? reflection.GetRepeatedEnumValue(message, &field, index) : reflection.GetEnumValue(message, &field)));
    case FieldDescriptor::CPPTYPE_STRING:
      return Quoted(item ? reflection.GetRepeatedString(message, &field, index)
                         : reflection.GetString(message, &field));
    default:
      SLACKLINE_CHECK(!"job.proto uses a type that the job file does not know");
      return "";
  }
}

void SetScalar(const YamlNode& node, const std::string& where, const std::string& key, const FieldDescriptor& field,
               Message& message, Mistakes& mistakes) {
  // A path or a name with a line end in it is the work of '|' or of an unclosed quote.
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING && HasLines(node)) {
    return mistakes.Add(where, key, Found(node), "text of one line");
  }
  if (TrySet(node, field, message)) return;
  mistakes.Add(where, key, Found(node), absl::StrCat(Allowed(field), Elsewhere(node, field)));
}

}  // namespace slackline::job_file
