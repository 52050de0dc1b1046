#include "common/job/reader.h"

#include <algorithm>
#include <functional>
#include <vector>

#include <google/protobuf/descriptor.h>
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/job/value.h"
#include "common/text/nearest_word.h"

namespace slackline::job_file {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;

constexpr size_t kListItemsMax = 1024;

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

// Returns the full key that `name`, unknown in `section`, was most likely meant to be: a similar key of that section,
// or the same name in another section of `root`. Returns an empty text if there is no similar key.
//   prefix  full key of the section with a dot at its end, or empty for the root
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

std::string KnownKeys(const Descriptor& section) {
  std::string keys;
  for (int i = 0; i < section.field_count(); ++i) {
    absl::StrAppend(&keys, i == 0 ? "" : ", ", section.field(i)->name());
  }
  return keys;
}

// "a map in { }, each key a whole number ..., each value a number ..."
std::string MapOf(const FieldDescriptor& field) {
  return absl::StrCat("a map in { }, each key ", Allowed(*field.message_type()->map_key()), ", each value ",
                      Allowed(*field.message_type()->map_value()));
}

std::string ListOf(const FieldDescriptor& field) {
  if (field.message_type() != nullptr) return absl::StrCat(Allowed(field), ": ", KnownKeys(*field.message_type()));
  return absl::StrCat(
      field.options().GetExtension(job::or_one) ? "one or a list in [ ], each " : "a list in [ ], each ",
      Allowed(field));
}

// The field whose value may stand for the whole section, or null.
const FieldDescriptor* AloneField(const Descriptor& section) {
  for (int i = 0; i < section.field_count(); ++i) {
    if (section.field(i)->options().GetExtension(job::alone)) return section.field(i);
  }
  return nullptr;
}

// A hint for keys that YAML has not seen, or sees elsewhere: "epochs:3", and "training.epochs". Else nothing.
std::string Misplaced(const std::string& text, const Descriptor& section) {
  const std::string first = text.substr(0, text.find(':'));
  if (first.size() < text.size() && section.FindFieldByName(first) != nullptr) {
    return absl::StrCat("; behind '", first, ":' there must be a space");
  }
  const Descriptor* at = &section;
  const std::vector<std::string> names = absl::StrSplit(text, '.');
  for (const std::string& name : names) {
    const FieldDescriptor* const field = at == nullptr ? nullptr : at->FindFieldByName(name);
    if (field == nullptr) return "";
    at = field->message_type();
  }
  if (names.size() < 2) return "";
  return absl::StrCat("; '", names.back(), "' is written below '", names[names.size() - 2], ":', dots are for --set");
}

// Walks a tree and a message side by side. `where` turns a line into the start of a message.
class Reader {
 public:
  Reader(std::function<std::string(int line)> where, Origins& origins, Mistakes& mistakes)
      : where_(std::move(where)), origins_(origins), mistakes_(mistakes) {}

  // `prefix` is the section's full key with a dot at its end, or empty for the root.
  void ReadSection(const YamlNode& node, const std::string& prefix, Message& message) {
    std::map<std::string, int> seen;
    for (const auto& [key, value] : node.entries) {
      const std::string where = where_(key.line);
      if (key.kind != YamlNode::Kind::kScalar) {
        mistakes_.AddText(where, absl::StrCat("found ", Found(key), " as a key; allowed are names"));
        continue;
      }
      const std::string full = absl::StrCat(prefix, key.text);
      const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(key.text);
      if (field == nullptr) {
        UnknownKey(where, key.text, prefix, *message.GetDescriptor());
      } else if (const auto [first, fresh] = seen.emplace(key.text, key.line); !fresh) {
        mistakes_.AddText(where, absl::StrCat(full, ": found a second time; the first is in line ", first->second));
      } else {
        ReadField(value, where, full, *field, message);
      }
    }
  }

  void ReadField(const YamlNode& node, const std::string& where, const std::string& key, const FieldDescriptor& field,
                 Message& message) {
    origins_[key] = where;
    if (field.is_map()) {
      ReadMap(node, where, key, field, message);
    } else if (field.is_repeated()) {
      ReadList(node, where, key, field, message);
    } else if (field.message_type() != nullptr) {
      ReadMessage(node, where, key, *field.message_type(), *message.GetReflection()->MutableMessage(&message, &field));
    } else {
      SetScalar(node, where, key, field, message, mistakes_);
    }
  }

  void UnknownKey(const std::string& where, const std::string& name, const std::string& prefix,
                  const Descriptor& section) {
    YamlNode shown;
    shown.kind = YamlNode::Kind::kScalar;
    shown.text = absl::StrCat(prefix, name);
    if (const std::string hint = Misplaced(name, section); !hint.empty()) {
      return mistakes_.AddText(where, absl::StrCat("found the unknown key ", Found(shown), hint));
    }
    const std::string nearest = NearestKey(name, section, prefix, *job::Job::descriptor());
    mistakes_.AddText(where, absl::StrCat("found the unknown key ", Found(shown),
                                          nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?"),
                                          nearest.empty() ? "; allowed are " : " Allowed are ", KnownKeys(section)));
  }

 private:
  // A section with nothing below it (all its keys commented out) is an empty one.
  void ReadMessage(const YamlNode& node, const std::string& where, const std::string& key, const Descriptor& section,
                   Message& message) {
    if (node.kind != YamlNode::Kind::kMap && node.kind != YamlNode::Kind::kNull) {
      mistakes_.Add(where, key, Found(node),
                    absl::StrCat("a section of keys: ", KnownKeys(section), Misplaced(node.text, section)));
      return;
    }
    ReadSection(node, absl::StrCat(key, "."), message);
  }

  void ReadList(const YamlNode& node, const std::string& where, const std::string& key, const FieldDescriptor& field,
                Message& message) {
    if (node.kind == YamlNode::Kind::kScalar && field.options().GetExtension(job::or_one)) {
      message.GetReflection()->ClearField(&message, &field);
      SetScalar(node, where, key, field, message, mistakes_);
      return;
    }
    if (node.kind != YamlNode::Kind::kList) {
      mistakes_.Add(where, key, Found(node), ListOf(field));
      return;
    }
    if (node.items.size() > kListItemsMax) {
      mistakes_.Add(where, key, absl::StrCat(node.items.size(), " items"), absl::StrCat("at most ", kListItemsMax));
      return;
    }
    message.GetReflection()->ClearField(&message, &field);
    for (size_t i = 0; i < node.items.size(); ++i) {
      const YamlNode& item = node.items[i];
      const std::string item_where = where_(item.line), item_key = absl::StrCat(key, "[", i, "]");
      if (field.message_type() == nullptr) {
        SetScalar(item, item_where, item_key, field, message, mistakes_);
        continue;
      }
      origins_[item_key] = item_where;
      Message& section = *message.GetReflection()->AddMessage(&message, &field);
      const FieldDescriptor* const alone = AloneField(*field.message_type());
      const bool value = item.kind == YamlNode::Kind::kScalar || item.kind == YamlNode::Kind::kList;
      if (alone != nullptr && value) {
        ReadField(item, item_where, absl::StrCat(item_key, ".", alone->name()), *alone, section);
      } else {
        ReadMessage(item, item_where, item_key, *field.message_type(), section);
      }
    }
  }

  void ReadMap(const YamlNode& node, const std::string& where, const std::string& key, const FieldDescriptor& field,
               Message& message) {
    if (node.kind != YamlNode::Kind::kMap) {
      mistakes_.Add(where, key, Found(node), MapOf(field));
      return;
    }
    if (node.entries.size() > kListItemsMax) {
      mistakes_.Add(where, key, absl::StrCat(node.entries.size(), " entries"), absl::StrCat("at most ", kListItemsMax));
      return;
    }
    message.GetReflection()->ClearField(&message, &field);
    std::map<std::string, int> seen;
    for (const auto& [entry_key, value] : node.entries) {
      const std::string entry_where = where_(entry_key.line);
      Message& entry = *message.GetReflection()->AddMessage(&message, &field);
      SetScalar(entry_key, entry_where, absl::StrCat("a key of ", key), *field.message_type()->map_key(), entry,
                mistakes_);
      const std::string name = absl::StrCat(key, "[", ScalarText(entry, *field.message_type()->map_key()), "]");
      if (const auto [first, fresh] = seen.emplace(name, entry_key.line); !fresh) {
        mistakes_.AddText(entry_where,
                          absl::StrCat(name, ": found a second time; the first is in line ", first->second));
      }
      SetScalar(value, entry_where, name, *field.message_type()->map_value(), entry, mistakes_);
    }
  }

  const std::function<std::string(int line)> where_;
  Origins& origins_;
  Mistakes& mistakes_;
};

// The value of an assignment as a node. Text is taken as it stands: "data.path=/a: b" needs no quotes.
absl::StatusOr<YamlNode> OverrideValue(const std::string& text, const FieldDescriptor& field) {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING && !field.is_repeated()) {
    YamlNode node;
    node.kind = YamlNode::Kind::kScalar;
    node.text = text;
    return node;
  }
  return ParseYaml(text);
}

}  // namespace

void ReadTree(const YamlNode& root, const std::string& name, job::Job& job, Origins& origins, Mistakes& mistakes) {
  if (root.kind == YamlNode::Kind::kNull) return;
  const auto where = [&name](int line) { return absl::StrCat(name, ":", line); };
  if (root.kind != YamlNode::Kind::kMap) {
    mistakes.AddText(where(root.line),
                     absl::StrCat("found ", Found(root), "; allowed are keys with values: ",
                                  KnownKeys(*job::Job::descriptor()), Misplaced(root.text, *job::Job::descriptor())));
    return;
  }
  Reader(where, origins, mistakes).ReadSection(root, "", job);
}

void ApplyOverride(const std::string& assignment, job::Job& job, Origins& origins, Mistakes& mistakes) {
  const std::string where = absl::StrCat("--set ", assignment);
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    mistakes.AddText(where, "found no KEY=VALUE; allowed is e.g. optimizer.lr=0.1");
    return;
  }
  Reader reader([&where](int) { return where; }, origins, mistakes);
  const std::string full = assignment.substr(0, equals);
  const std::vector<std::string> names = absl::StrSplit(full, '.');
  Message* message = &job;
  std::string prefix;
  for (size_t i = 0; i < names.size(); ++i) {
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(names[i]);
    if (field == nullptr) {
      reader.UnknownKey(where, names[i], prefix, *message->GetDescriptor());
      return;
    }
    absl::StrAppend(&prefix, names[i], ".");
    if (i + 1 < names.size()) {
      if (field->message_type() == nullptr || field->is_repeated()) {
        mistakes.AddText(where, absl::StrCat("found keys below '", names[i], "'; allowed is ", Allowed(*field)));
        return;
      }
      message = message->GetReflection()->MutableMessage(message, field);
      continue;
    }
    const absl::StatusOr<YamlNode> value = OverrideValue(assignment.substr(equals + 1), *field);
    if (!value.ok()) {
      const absl::string_view why = absl::StripPrefix(value.status().message(), "1: ");
      mistakes.Add(where, full, absl::StrCat("a value that is not YAML (", why, ")"), Allowed(*field));
    } else {
      reader.ReadField(*value, where, full, *field, *message);
    }
  }
}

}  // namespace slackline::job_file
