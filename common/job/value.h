// One value of the job file onto one field of a message.
#pragma once

#include <string>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include "common/job/mistakes.h"
#include "common/job/yaml_tree.h"

namespace slackline::job_file {

// Sets `field` of `message` (or appends to it, if repeated) from the scalar `node`. Says into `mistakes` what is
// wrong with it: its type, its range, or that there is nothing. `where` and `key` are for that message.
void SetScalar(const YamlNode& node, const std::string& where, const std::string& key,
               const google::protobuf::FieldDescriptor& field, google::protobuf::Message& message, Mistakes& mistakes);

// The value of a field that is not repeated, or of item `index` of one that is (index >= 0), as the file writes it.
std::string ScalarText(const google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field,
                       int index = -1);

// What may stand there: "a number from 0 to 1", "one of async, ssp, bsp".
std::string Allowed(const google::protobuf::FieldDescriptor& field);
// What stands there: "'fast'", "a list", "nothing".
std::string Found(const YamlNode& node);

// An enum value as the file writes it: in lower case.
std::string EnumName(const google::protobuf::EnumValueDescriptor& value);
// The shortest decimal that reads back as the same number.
std::string NumberText(double number);

}  // namespace slackline::job_file
