#include "cli/slurm/meeting.h"

#include <fstream>
#include <system_error>
#include <type_traits>

#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "cli/base/replace_file.h"
#include "common/text/json_text.h"
#include "common/time/clock.h"

namespace slackline::cli::slurm {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kArrived[] = ".here";
constexpr absl::Duration kBeatEvery = absl::Seconds(1);

// The field of an object, or `otherwise` where it is not there or of another type.
template <typename Value>
Value Field(const json& object, const char* name, Value otherwise) {
  const auto found = object.find(name);
  if (found == object.end()) return otherwise;
  if constexpr (std::is_same_v<Value, std::string>) {
    return found->is_string() ? found->get<std::string>() : otherwise;
  } else if constexpr (std::is_same_v<Value, bool>) {
    return found->is_boolean() ? found->get<bool>() : otherwise;
  } else {
    return found->is_number() ? found->get<Value>() : otherwise;
  }
}

std::vector<std::string> Names(const json& object, const char* name) {
  std::vector<std::string> names;
  const auto found = object.find(name);
  if (found == object.end() || !found->is_array()) return names;
  for (const json& entry : *found) {
    if (entry.is_string()) names.push_back(entry.get<std::string>());
  }
  return names;
}

json ToJson(const NodeFacts& facts) {
  return {{"name", facts.node.name}, {"topology", facts.node.topology},   {"cpus", facts.node.cpus},
          {"gpus", facts.node.gpus}, {"component", facts.node.component}, {"address", facts.address},
          {"machine", facts.machine}};
}

json ToJson(const Plan& plan) {
  json nodes = json::array();
  for (const NodeRoles& roles : plan.roles) {
    nodes.push_back(
        {{"node", roles.node}, {"scheduler", roles.scheduler}, {"servers", roles.servers}, {"workers", roles.workers}});
  }
  json text = {{"number", plan.number}, {"nodes", nodes}};
  if (!plan.script.empty()) text["script"] = plan.script;
  if (plan.end_within) text["end_within_s"] = absl::ToDoubleSeconds(*plan.end_within);
  return text;
}

}  // namespace

Meeting::Meeting(const fs::path& run_folder, const std::string& attempt) : folder_(run_folder / "nodes" / attempt) {}

absl::Status Meeting::Open() const {
  std::error_code error;
  fs::create_directories(folder_.parent_path(), error);
  if (!error && fs::create_directory(folder_, error)) return absl::OkStatus();
  if (!error)
    return absl::AlreadyExistsError(absl::StrCat("found ", folder_.string(), ": this attempt was made before"));
  return absl::UnavailableError(absl::StrCat("cannot make ", folder_.string(), ": ", error.message()));
}

absl::Status Meeting::Arrive(const NodeFacts& facts) const {
  return ReplaceFile(folder_ / (facts.node.name + kArrived), DumpJson(ToJson(facts)) + "\n");
}

absl::Status Meeting::WritePlan(const Plan& plan) const {
  return ReplaceFile(folder_ / "plan.json", DumpJson(ToJson(plan), 2) + "\n");
}

absl::Status Meeting::Leave(const std::string& node, const std::string& reason) const {
  return ReplaceFile(folder_ / (node + ".leaving"), reason + "\n");
}

absl::Status Meeting::Trouble(const std::string& node, const std::string& reason) const {
  return ReplaceFile(folder_ / (node + ".trouble"), reason + "\n");
}

absl::Status Meeting::Beat(uint64_t number) const {
  return ReplaceFile(folder_ / "launcher.beat", absl::StrCat(number, "\n"));
}

uint64_t Meeting::LastBeat() const {
  std::ifstream in(folder_ / "launcher.beat");
  uint64_t number = 0;
  return in >> number ? number : 0;
}

std::map<std::string, NodeFacts> Meeting::Arrived() const {
  std::map<std::string, NodeFacts> arrived;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().extension() != kArrived) continue;
    const json text = ReadJson(entry.path());
    if (!text.is_object()) continue;
    NodeFacts facts;
    facts.node.name = Field(text, "name", std::string());
    if (facts.node.name.empty()) continue;
    facts.node.topology = Field(text, "topology", std::string());
    facts.node.cpus = Field(text, "cpus", 1u);
    facts.node.gpus = Field(text, "gpus", 0u);
    facts.node.component = Field(text, "component", 0u);
    facts.address = Field(text, "address", std::string());
    facts.machine = Field(text, "machine", std::string());
    arrived[facts.node.name] = facts;
  }
  return arrived;
}

std::optional<Plan> Meeting::ReadPlan() const {
  const json text = ReadJson(folder_ / "plan.json");
  if (!text.is_object()) return std::nullopt;
  Plan plan;
  plan.number = Field(text, "number", uint64_t{0});
  for (const json& node : text.value("nodes", json())) {
    if (!node.is_object()) continue;
    plan.roles.push_back({Field(node, "node", std::string()), Field(node, "scheduler", false), Names(node, "servers"),
                          Names(node, "workers")});
  }
  plan.script = Names(text, "script");
  if (text.contains("end_within_s")) plan.end_within = absl::Seconds(Field(text, "end_within_s", 0.0));
  return plan;
}

void Pulse::StillHere() {
  const absl::Time now = SteadyTime().Now();
  if (now < due_) return;
  due_ = now + kBeatEvery;
  // A disk that is full is said by others; the nodes ask the scheduler, too.
  meeting_.Beat(++beats_).IgnoreError();
}

std::map<std::string, std::string> Meeting::Notes(const std::vector<std::string>& nodes,
                                                  const std::string& ending) const {
  std::map<std::string, std::string> notes;
  for (const std::string& node : nodes) {
    std::ifstream in(folder_ / (node + ending));
    if (!in) continue;
    std::string text(std::istreambuf_iterator<char>(in), {});
    while (!text.empty() && text.back() == '\n') text.pop_back();
    notes[node] = text;
  }
  return notes;
}

}  // namespace slackline::cli::slurm
