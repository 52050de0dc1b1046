// Reads a YAML tree into the message Job, by reflection. The schema in job.proto is the only list of keys.
#pragma once

#include <map>
#include <string>

#include "common/job/mistakes.h"
#include "common/job/yaml_tree.h"
#include "job.pb.h"

namespace slackline::job_file {

// Place where each field was set, by its full key ("optimizer.lr"): "FILE:LINE" or "--set K=V".
using Origins = std::map<std::string, std::string>;

// Reads the tree of a whole file, which messages call `name`.
void ReadTree(const YamlNode& root, const std::string& name, job::Job& job, Origins& origins, Mistakes& mistakes);

// Applies "optimizer.lr=0.1". Lists and maps are replaced, not extended.
void ApplyOverride(const std::string& assignment, job::Job& job, Origins& origins, Mistakes& mistakes);

}  // namespace slackline::job_file
