// The message Job with its defaults written out, and as YAML.
#pragma once

#include <string>

#include "job.pb.h"

namespace slackline::job_file {

// Sets every field of `message` that is not set to its default, in all sections below it.
void SetDefaults(google::protobuf::Message& message);

// Unsets every field that has its default, in all sections below it: what is left is what is said of the job, whatever
// fields the schema has beside it.
void ClearDefaults(google::protobuf::Message& message);

// Every field, in the order of the schema; fields that are not set with their default.
std::string WriteYaml(const job::Job& job);

}  // namespace slackline::job_file
