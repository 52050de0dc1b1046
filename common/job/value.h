// Reads one value of the job file into one field of a message.
#pragma once

#include <string>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include "common/job/mistakes.h"
#include "common/job/yaml_tree.h"

namespace slackline::job_file {

// Sets `field` of `message` (or appends to it, if repeated) from the scalar `node`. Adds a mistake to `mistakes` if the
// type or range is wrong or the value is missing. `where` and `key` are for the text of that mistake.
void SetScalar(const YamlNode& node, const std::string& where, const std::string& key,
               const google::protobuf::FieldDescriptor& field, google::protobuf::Message& message, Mistakes& mistakes);

// Returns a field's value as the file writes it. For a repeated field `index` (>= 0) selects the item.
std::string ScalarText(const google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field,
                       int index = -1);

// Returns the allowed values: "a number from 0 to 1", "one of async, ssp, bsp".
std::string Allowed(const google::protobuf::FieldDescriptor& field);
// Returns the found value: "'fast'", "a list", "nothing".
std::string Found(const YamlNode& node);

// Returns an enum value as the file writes it: in lower case.
std::string EnumName(const google::protobuf::EnumValueDescriptor& value);
// Returns the shortest decimal that reads back as the same number.
std::string NumberText(double number);

}  // namespace slackline::job_file
