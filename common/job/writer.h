// Writes out the defaults of the message Job, and writes it as YAML.
#pragma once

#include <string>
#include <vector>

#include "common/job/job_file.h"
#include "job.pb.h"

namespace slackline::job_file {

// Sets every unset field of `message` to its default, in all sections below it.
void SetDefaults(google::protobuf::Message& message);

// Unsets every field that has its default value, in all sections below it. The remaining fields are what the job says,
// whatever other fields the schema has.
void ClearDefaults(google::protobuf::Message& message);

// Returns every setting below `message`, in the order of the schema, with its value as in YAML. `is_default` is false.
std::vector<SettingView> Flatten(const google::protobuf::Message& message);

// Returns every field of a resolved job, in the order of the schema.
std::string WriteYaml(const job::Job& job);

}  // namespace slackline::job_file
