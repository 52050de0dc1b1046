// Command-line options that several programs and commands have.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace slackline {

// Adds JOB, which is required.
void AddJobFile(CLI::App& app, std::string& job_file, const char* what = "Job file (YAML)");
// Adds --set. `example` is a setting with a value, for the help.
CLI::Option* AddOverrides(CLI::App& app, std::vector<std::string>& overrides, const char* example = "optimizer.lr=0.1");

// Options of servers and workers: processes that join a job.
struct MemberOptions {
  std::string job_file = {};
  std::vector<std::string> overrides = {};
  std::string scheduler = {};
  std::string name = {};
  std::string topology = {};
  bool supervised = false;
};

// Adds JOB, --scheduler, --set, --name, --topology and --supervised. `name` describes --name. Returns --scheduler.
CLI::Option* AddMemberOptions(CLI::App& app, MemberOptions& options, const char* name);

}  // namespace slackline
