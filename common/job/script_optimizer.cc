#include "common/job/script_optimizer.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <google/protobuf/descriptor.h>
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/job/job_kinds.h"
#include "common/job/mistakes.h"
#include "common/job/rules.h"
#include "common/job/value.h"
#include "common/optimizer/optimizer.h"
#include "common/text/utf8.h"

namespace slackline {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Settings that optimizers of torch.optim have, too. The others of `optimizer` are the job file's alone.
constexpr absl::string_view kOfScripts[] = {"kind",         "lr",    "momentum", "nesterov",
                                            "weight_decay", "beta1", "beta2",    "epsilon"};
// Place of a script's settings in messages.
constexpr char kScript[] = "the script's optimizer";
// Largest number of bytes of a group's name, which a peer chooses.
constexpr size_t kNameMax = 200;
constexpr int kGroupsShown = 4;

std::vector<const FieldDescriptor*> FieldsOfScripts() {
  std::vector<const FieldDescriptor*> fields;
  for (const absl::string_view name : kOfScripts) {
    fields.push_back(job::Optimizer::descriptor()->FindFieldByName(std::string(name)));
  }
  return fields;
}

bool Has(const Message& message, const FieldDescriptor& field) {
  return message.GetReflection()->HasField(message, &field);
}

job_file::YamlNode Scalar(std::string text) {
  job_file::YamlNode node;
  node.kind = job_file::YamlNode::Kind::kScalar;
  node.text = std::move(text);
  return node;
}

std::string GroupKey(int number) { return absl::StrCat("optimizer.groups[", number, "]"); }

// Adds a group of a script, whose name a peer chooses.
void AddGroup(const job::ParameterGroup& group, const std::string& key, job::Optimizer& optimizer,
              job_file::Mistakes& mistakes) {
  const std::string& name = group.match();
  if (name.empty() || name.size() > kNameMax || !IsUtf8(name) || OneLine(name) != name) {
    mistakes.Add(kScript, key,
                 absl::StrCat("a name of ", name.size(), " bytes, '", OneLine(ValidText(name, kNameMax)), "'"),
                 absl::StrCat("1 to ", kNameMax, " bytes of UTF-8 on one line"));
    return;
  }
  job::ParameterGroup& out = *optimizer.add_groups();
  out.set_match(name);
  for (const char* const number : {"lr_factor", "weight_decay"}) {
    const FieldDescriptor& field = *job::ParameterGroup::descriptor()->FindFieldByName(number);
    job_file::SetScalar(Scalar(job_file::ScalarText(group, field)), kScript, absl::StrCat(key, ".", number), field, out,
                        mistakes);
  }
}

absl::Status CheckOfScript(const job::Optimizer& script) {
  job::Optimizer others = script;
  for (const FieldDescriptor* field : FieldsOfScripts()) others.GetReflection()->ClearField(&others, field);
  others.clear_groups();
  if (others.ByteSizeLong() == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(kScript, ": found ", others.ShortDebugString(), "; allowed are ",
                                                 absl::StrJoin(kOfScripts, ", "),
                                                 " and groups: the others are the job file's"));
}

}  // namespace

absl::StatusOr<job::Optimizer> ReadScriptOptimizer(absl::Span<const std::string> settings,
                                                   absl::Span<const ScriptGroup> groups) {
  job::Optimizer script;
  job_file::Mistakes mistakes;
  for (const std::string& setting : settings) {
    const std::pair<std::string, std::string> both = absl::StrSplit(setting, absl::MaxSplits('=', 1));
    const auto known = std::find(std::begin(kOfScripts), std::end(kOfScripts), both.first);
    if (known == std::end(kOfScripts)) {
      mistakes.Add(kScript, "optimizer." + both.first, both.second, absl::StrJoin(kOfScripts, ", "));
      continue;
    }
    job_file::SetScalar(Scalar(both.second), kScript, "optimizer." + both.first,
                        *job::Optimizer::descriptor()->FindFieldByName(both.first), script, mistakes);
  }
  for (const ScriptGroup& group : groups) {
    job::ParameterGroup& out = *script.add_groups();
    out.set_match(group.name);
    out.set_lr_factor(group.lr_factor);
    out.set_weight_decay(group.weight_decay);
  }
  if (absl::Status status = mistakes.ToStatus(); !status.ok()) return status;
  return script;
}

absl::StatusOr<job::Optimizer> WithScriptOptimizer(const job::Job& job, const job::Optimizer& script) {
  if (absl::Status only = CheckOfScript(script); !only.ok()) return only;
  if (!RunsScripts(job)) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.kind: found ", FactsOf(job.model()).name,
                     "; allowed is external where the script gives the optimizer. Else give "
                     "slackline.Optimizer no like=, and the job file decides"));
  }
  job::Optimizer whole = job.optimizer();
  job_file::Mistakes mistakes;
  for (const FieldDescriptor* field : FieldsOfScripts()) {
    if (!Has(script, *field)) continue;
    const std::string key = absl::StrCat("optimizer.", field->name()), own = job_file::ScalarText(script, *field);
    if (!Has(job.optimizer(), *field)) {
      job_file::SetScalar(Scalar(own), kScript, key, *field, whole, mistakes);
    } else if (const std::string named = job_file::ScalarText(job.optimizer(), *field); named != own) {
      mistakes.AddText(key, absl::StrCat("the job file says ", named, ", and the script's optimizer ", own, ". Take ",
                                         key, " out of the job file to use the script's, or say the same in both"));
    }
  }
  if (job.optimizer().groups_size() > 0) {
    mistakes.AddText(
        "optimizer.groups",
        absl::StrCat("the job file has ", job.optimizer().groups_size(),
                     ", and the script's optimizer has groups of its own. Take optimizer.groups out of the job "
                     "file to use the script's, or give slackline.Optimizer no like="));
  }
  for (int i = 0; i < script.groups_size(); ++i) AddGroup(script.groups(i), GroupKey(i), whole, mistakes);
  if (absl::Status status = mistakes.ToStatus(); !status.ok()) return status;
  job::Job checked = job;
  // Other rules held before, when these sections were as the file has them.
  checked.clear_network();
  checked.clear_security();
  *checked.mutable_optimizer() = whole;
  job_file::CheckRules(checked, "the job file with the script's optimizer", {}, mistakes);
  if (absl::Status status = mistakes.ToStatus(); !status.ok()) return status;
  return whole;
}

void LeaveToScript(const job::Job& given, job::Job& resolved) {
  if (!RunsScripts(resolved)) return;
  job::Optimizer& optimizer = *resolved.mutable_optimizer();
  for (const FieldDescriptor* field : FieldsOfScripts()) {
    if (!Has(given.optimizer(), *field)) optimizer.GetReflection()->ClearField(&optimizer, field);
  }
}

bool LeavesToScript(const job::Job& resolved) {
  const std::vector<const FieldDescriptor*> fields = FieldsOfScripts();
  return std::any_of(fields.begin(), fields.end(),
                     [&](const FieldDescriptor* field) { return !Has(resolved.optimizer(), *field); });
}

std::map<std::string, std::string> SettingsOf(const job::Optimizer& script) {
  std::map<std::string, std::string> settings;
  for (const FieldDescriptor* field : FieldsOfScripts()) {
    if (Has(script, *field)) settings[absl::StrCat("optimizer.", field->name())] = job_file::ScalarText(script, *field);
  }
  for (int i = 0; i < script.groups_size(); ++i) {
    settings[GroupKey(i) + ".lr_factor"] = job_file::NumberText(script.groups(i).lr_factor());
    settings[GroupKey(i) + ".weight_decay"] = job_file::NumberText(script.groups(i).weight_decay());
  }
  return settings;
}

std::string OptimizerText(const job::Optimizer& optimizer) {
  using job_file::NumberText;
  const OptimizerFacts& facts = FactsOf(optimizer);
  std::string text = absl::StrCat(facts.name, ", lr ", NumberText(optimizer.lr()));
  if (facts.has_momentum && optimizer.momentum() > 0) {
    absl::StrAppend(&text, ", momentum ", NumberText(optimizer.momentum()), optimizer.nesterov() ? " (nesterov)" : "");
  }
  if (facts.has_moments) {
    absl::StrAppend(&text, ", beta1 ", NumberText(optimizer.beta1()), ", beta2 ", NumberText(optimizer.beta2()),
                    ", epsilon ", NumberText(optimizer.epsilon()));
  }
  absl::StrAppend(&text, ", weight_decay ", NumberText(optimizer.weight_decay()));
  for (int i = 0; i < std::min(optimizer.groups_size(), kGroupsShown); ++i) {
    const job::ParameterGroup& group = optimizer.groups(i);
    absl::StrAppend(&text, "; ", group.match(), ": ");
    if (group.frozen()) {
      text += "frozen";
      continue;
    }
    absl::StrAppend(&text, "lr ", NumberText(optimizer.lr() * group.lr_factor()), ", weight_decay ",
                    NumberText(group.weight_decay() < 0 ? optimizer.weight_decay() : group.weight_decay()));
  }
  if (optimizer.groups_size() > kGroupsShown) {
    absl::StrAppend(&text, "; ", optimizer.groups_size() - kGroupsShown, " more groups");
  }
  return text;
}

}  // namespace slackline
