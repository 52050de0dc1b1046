#include "cli/run/report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "cli/base/shell_word.h"
#include "cli/run/progress.h"
#include "common/job/job_kinds.h"
#include "common/job/push_samples.h"
#include "common/text/counted.h"
#include "scheduler/base/job_state_name.h"

namespace slackline::cli {
namespace {

constexpr int kNameColumnsMin = 20;
// The table of more classes shows so many at either end, in the order of their F1.
constexpr int kClassRowsMax = 50;
constexpr size_t kClassesAtEitherEnd = 20;

std::string Row(int columns, const std::string& name, const std::string& images, double precision, double recall,
                double f1) {
  return absl::StrFormat("  %-*s %8s %10.3f %8.3f %8.3f\n", columns, name, images, precision, recall, f1);
}

// The table of the classes, without its last lines.
std::string RenderClasses(const wire::EvaluationReport& evaluation, int columns) {
  const char* const counted = evaluation.has_map_50() ? "objects" : "images";
  std::string out =
      absl::StrFormat("  %-*s %8s %10s %8s %8s\n", columns, "class", counted, "precision", "recall", "F1");
  const auto add = [&](const wire::ClassReport& row) {
    out += Row(columns, row.name(), absl::StrCat(row.samples()), row.precision(), row.recall(), row.f1());
  };
  if (evaluation.classes_size() <= kClassRowsMax) {
    for (const wire::ClassReport& row : evaluation.classes()) add(row);
    return out;
  }
  std::vector<const wire::ClassReport*> rows;
  for (const wire::ClassReport& row : evaluation.classes()) {
    if (row.samples() > 0) rows.push_back(&row);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto* a, const auto* b) { return a->f1() > b->f1(); });
  const size_t best = std::min(kClassesAtEitherEnd, rows.size());
  const size_t worst = std::min(kClassesAtEitherEnd, rows.size() - best);
  for (size_t i = 0; i < best; ++i) add(*rows[i]);
  absl::StrAppend(&out, "  ... ", rows.size() - best - worst, " classes between");
  if (const size_t absent = static_cast<size_t>(evaluation.classes_size()) - rows.size(); absent > 0) {
    absl::StrAppend(&out, ", and ", absent, " without ", counted);
  }
  absl::StrAppend(&out, ": report.json has each\n");
  for (size_t i = rows.size() - worst; i < rows.size(); ++i) add(*rows[i]);
  return out;
}

// What each file of a run folder is for; files that are not there are left out.
struct Result {
  const char* path;
  const char* meaning;
};
constexpr Result kResults[] = {
    {"model.safetensors", "the weights; safetensors.torch.load_file reads them"},
    {"metrics.csv", "loss, accuracy, samples/s, staleness and slack over time"},
    {"epochs.csv", "times, loss, accuracy and energy of each epoch"},
    {"power.csv", "power of each metered device at each sample"},
    {"report.json", "the table above, for programs"},
    {"confusion.csv", "test images by label and prediction"},
    {"job.yaml", "the job with every setting written out"},
    {"events.log", "who came, left and died, and when"},
    {"logs", "what each process said"},
};

// A setting that makes another kind of run, and that the other settings allow.
std::pair<std::string, absl::string_view> NextConsistency(const job::Job& job) {
  const job::Consistency& consistency = job.consistency();
  const uint32_t staleness_max = consistency.staleness_max();
  if (consistency.staleness_lr() != job::Consistency::NONE)
    return {"staleness_lr=none", "stale gradients count in full"};
  // The other modes refuse to correct what is never stale there.
  if (consistency.delay_compensation() != job::DelayCompensation::NONE ||
      job.optimizer().momentum_correction() != job::MomentumCorrection::NONE) {
    return {"staleness_lr=inverse", "stale gradients count less"};
  }
  if (PredictsWeights(job)) return {"weight_prediction=none", "workers pull the weights as they are"};
  if (consistency.aggregation() == job::Aggregation::MEDIAN) return {"aggregation=mean", "no push is left out"};
  if (consistency.aggregation() == job::Aggregation::TRIMMED_MEAN) {
    return {absl::StrCat("trim=", consistency.trim() < 0.25 ? 0.3 : 0.1), "another part of the pushes is left out"};
  }
  switch (consistency.mode()) {
    case job::Consistency::ASYNC:
      break;
    case job::Consistency::SSP:
      // The other modes refuse a bound that was set.
      if (staleness_max == job::Consistency::default_instance().staleness_max()) break;
      return {absl::StrCat("staleness_max=", 2 * staleness_max + 1), "a looser bound"};
    case job::Consistency::BSP:
      // Momentum of an outer optimizer, which is usual with bsp, does not fit rounds that come one by one.
      if (TrainsLocally(job)) return {"mode=quorum", "nobody waits for the slowest"};
      return {"mode=async", "nobody waits"};
    case job::Consistency::SOFTSYNC:
      return {absl::StrCat("softsync_n=", std::min<uint32_t>(65536, 2 * consistency.softsync_n())),
              "twice as many steps of half as many pushes"};
    case job::Consistency::QUORUM:
      if (consistency.quorum() >= 1) return {"quorum=0.75", "nobody waits for the slowest"};
      return {"quorum=1", "synchronous: each step waits for all workers"};
  }
  return {"mode=bsp", "synchronous: each step waits for all workers"};
}

// "12.3 kJ"
std::string Scaled(double amount, const char* unit) {
  const char* const prefixes[] = {"", "k", "M", "G", "T"};
  size_t prefix = 0;
  for (; std::abs(amount) >= 1000 && prefix < 4; ++prefix) amount /= 1000;
  return absl::StrFormat("%.3g %s%s", amount, prefixes[prefix], unit);
}

bool IsServer(const wire::MemberStatus& member) {
  return member.role() == wire::MEMBER_ROLE_SERVER && !member.backup() && member.state() != "left";
}

// The names of those in that state.
std::vector<std::string> ServersThatAre(const wire::GetStatusReply& status, const std::string& state) {
  std::vector<std::string> names;
  for (const wire::MemberStatus& member : status.members()) {
    if (IsServer(member) && member.state() == state) names.push_back(member.name());
  }
  return names;
}

// How many servers are to leave. One that is dead does not say so itself.
int64_t LeavingServers(const wire::GetStatusReply& status) {
  if (status.state() != wire::JOB_TRAINING) return 0;
  const auto there = std::count_if(status.members().begin(), status.members().end(), IsServer);
  return there + status.servers_to_come() - status.servers_wanted();
}

// With backups, the servers that were replaced have the number of those that took over.
bool IsReplicated(const wire::GetStatusReply& status) {
  std::set<uint32_t> servers;
  for (const wire::MemberStatus& member : status.members()) {
    if (member.role() != wire::MEMBER_ROLE_SERVER) continue;
    if (member.backup() || !servers.insert(member.member()).second) return true;
  }
  return false;
}

// Who backs it up, or whom it backs up, where that is anybody's business; begins with a comma.
std::string BackupText(const wire::GetStatusReply& status, const wire::MemberStatus& member) {
  if (member.role() != wire::MEMBER_ROLE_SERVER) return "";
  for (const wire::MemberStatus& other : status.members()) {
    if (other.role() != wire::MEMBER_ROLE_SERVER || other.member() != member.member()) continue;
    if (other.backup() == member.backup()) continue;
    return member.backup() ? absl::StrCat(", backup of ", other.name()) : "";
  }
  const bool lacks = !member.backup() && member.state() == "live" && IsReplicated(status);
  return lacks ? ", without a backup" : "";
}

}  // namespace

std::vector<std::string> PendingServers(const wire::GetStatusReply& status) {
  std::vector<std::string> pending;
  if (!status.servers_change()) return pending;
  const std::vector<std::string> dead = ServersThatAre(status, "dead"), draining = ServersThatAre(status, "draining");
  const int64_t dead_leaving = LeavingServers(status) - static_cast<int64_t>(draining.size());
  // Of several that are dead it is not said which.
  const bool all_leave = dead_leaving == static_cast<int64_t>(dead.size());
  for (const std::string& name : dead) {
    pending.push_back(
        absl::StrCat(name, all_leave ? " is to leave, and" : "", " is dead: nothing moves until it is started again"));
  }
  for (const std::string& name : draining) pending.push_back(absl::StrCat(name, " is to leave"));
  if (const uint32_t more = status.servers_to_come(); more > 0) {
    pending.push_back(absl::StrCat(more, " more server", more == 1 ? "" : "s", " may join"));
  }
  return pending;
}

std::string RenderPrecision(const wire::EvaluationReport& evaluation) {
  std::string out = absl::StrFormat("mAP %.2f %% (%.2f %% at an overlap of 0.5)", 100 * evaluation.accuracy(),
                                    100 * evaluation.map_50());
  if (evaluation.has_mask_map()) {
    absl::StrAppendFormat(&out, ", of masks %.2f %% (%.2f %%)", 100 * evaluation.mask_map(),
                          100 * evaluation.mask_map_50());
  }
  return out;
}

std::string RenderEvaluation(const job::Job& job, const wire::EvaluationReport& evaluation) {
  const std::string basis =
      absl::StrFormat("%s %s, after %u epochs)", RenderCount(static_cast<double>(evaluation.samples())),
                      SamplesNoun(job), evaluation.epoch());
  if (evaluation.has_map_50()) {
    return RenderEvaluation(evaluation, absl::StrCat("Test ", RenderPrecision(evaluation), "  (", basis));
  }
  const std::vector<std::string> texts = FigureTexts(MetricOf(job).name, evaluation);
  // A script that brings none.
  if (evaluation.samples() == 0 || texts.empty()) return "Test: nothing was evaluated\n";
  const std::string others = absl::StrJoin(
      texts.begin() + 1, texts.end(), "", [](std::string* out, const auto& text) { absl::StrAppend(out, text, ", "); });
  return RenderEvaluation(evaluation, absl::StrCat("Test ", texts.front(), "  (", others, basis));
}

std::string RenderEvaluation(const wire::EvaluationReport& evaluation, const std::string& first) {
  std::string out = absl::StrCat(first, "\n\n");
  if (evaluation.has_top5_accuracy()) {
    out.insert(out.size() - 1, absl::StrFormat("Top-5 accuracy %.2f %%\n", 100 * evaluation.top5_accuracy()));
  }
  // Scripts may say an accuracy, and no classes.
  const bool by_class = std::any_of(evaluation.classes().begin(), evaluation.classes().end(),
                                    [](const wire::ClassReport& row) { return row.samples() > 0; });
  // Evaluations of very many classes bring only the means.
  if (!by_class && evaluation.f1_macro() > 0) {
    absl::StrAppendFormat(&out,
                          "  Mean over the classes: precision %.3f, recall %.3f, F1 %.3f; report.json has each class\n",
                          evaluation.precision_macro(), evaluation.recall_macro(), evaluation.f1_macro());
    return out;
  }
  if (!by_class && !evaluation.has_map_50()) return out.substr(0, out.size() - 1);
  int columns = kNameColumnsMin;
  for (const wire::ClassReport& row : evaluation.classes()) {
    columns = std::max(columns, static_cast<int>(row.name().size()));
  }
  out += RenderClasses(evaluation, columns);
  double precision_weighted = 0;
  for (const wire::ClassReport& row : evaluation.classes()) {
    if (evaluation.samples() == 0) continue;
    precision_weighted +=
        row.precision() * static_cast<double>(row.samples()) / static_cast<double>(evaluation.samples());
  }
  out +=
      Row(columns, "mean (macro)", "", evaluation.precision_macro(), evaluation.recall_macro(), evaluation.f1_macro());
  if (evaluation.has_map_50()) return out;
  // One label an image: micro precision and recall are both the accuracy, and so is the weighted recall.
  out += Row(columns, "all (micro)", "", evaluation.accuracy(), evaluation.accuracy(), evaluation.f1_micro());
  out += Row(columns, "by images (weighted)", "", precision_weighted, evaluation.accuracy(), evaluation.f1_weighted());
  return out;
}

std::string RenderEnergy(const wire::EnergyView* energy) {
  if (energy == nullptr) return "energy: not metered\n";
  const wire::PhaseJoules& joules = energy->joules();
  std::string out =
      absl::StrFormat("energy %s (training %s, validation %s, test %s, other %s)", Scaled(energy->total_joules(), "J"),
                      Scaled(joules.training(), "J"), Scaled(joules.validation(), "J"), Scaled(joules.test(), "J"),
                      Scaled(joules.other(), "J"));
  if (energy->watts() > 0) absl::StrAppend(&out, ", ", Scaled(energy->watts(), "W"), " now");
  absl::StrAppend(&out, "; energy x time ", Scaled(energy->edp_joule_seconds(), "J s"), "\n");
  return out;
}

std::string RenderResults(const std::filesystem::path& folder) {
  std::string out = absl::StrCat("Results in ", folder.string(), "\n");
  for (const Result& result : kResults) {
    std::error_code error;
    if (!std::filesystem::exists(folder / result.path, error)) continue;
    absl::StrAppendFormat(&out, "  %-18s %s\n", result.path, result.meaning);
  }
  return out;
}

std::string RenderNext(const job::Job& job, const StartText& start, const std::filesystem::path& folder) {
  std::string out = "Try next\n";
  const auto suggest = [&](const std::string& setting, absl::string_view meaning) {
    absl::StrAppend(&out, "  ", start.head, " --set ", ShellWord(setting), start.tail, "  # ", meaning, "\n");
  };
  const auto [consistency, meaning] = NextConsistency(job);
  suggest(absl::StrCat("consistency.", consistency), meaning);
  if (job.model().kind() == job::Model::MLP && job.model().hidden_size() < 2) {
    suggest("model.hidden=[256,128]", "a deeper model");
  }
  const uint32_t groups = static_cast<uint32_t>(job.worker().groups_size());
  const uint32_t scripts = WorkersOfScripts(job.worker());
  suggest(absl::StrCat("cluster.workers=", job.cluster().workers() + std::max(groups, scripts)),
          groups > 1    ? "one more worker of each group"
          : scripts > 1 ? "the workers of one more node"
                        : "one more worker");
  if (job.output().tensorboard()) {
    absl::StrAppend(&out, "  tensorboard --logdir ", folder.parent_path().string(),
                    "  # compare runs (pip install tensorboard)\n");
  }
  return out;
}

std::string RenderStatus(const wire::GetStatusReply& status) {
  std::string out = absl::StrCat("job ", status.name(), ": ", scheduler::NameOf(status.state()),
                                 status.reason().empty() ? "" : absl::StrCat(" (", status.reason(), ")"), "\n");
  if (status.state() != wire::JOB_STARTING) absl::StrAppend(&out, RenderPlain(status), "\n");
  out += RenderTest(status);
  if (status.state() != wire::JOB_STARTING) out += RenderEnergy(status.has_energy() ? &status.energy() : nullptr);
  if (!status.moving().empty()) absl::StrAppend(&out, "moving ", status.moving(), "\n");
  if (const std::vector<std::string> pending = PendingServers(status); !pending.empty()) {
    absl::StrAppend(&out, "servers: ", absl::StrJoin(pending, "; "), "\n");
  }
  absl::StrAppendFormat(&out, "\n  %-16s %-11s %10s %12s %10s %8s  %s\n", "member", "state", "clock", "samples",
                        "samples/s", "silent", "address");
  for (const wire::MemberStatus& member : status.members()) {
    const bool worker = member.role() == wire::MEMBER_ROLE_WORKER;
    absl::StrAppendFormat(
        &out, "  %-16s %-11s %10s %12s %10s %6.1f s  %s%s%s%s\n", member.name(), member.state(),
        worker ? absl::StrCat(member.clock()) : "-", worker ? RenderCount(static_cast<double>(member.samples())) : "-",
        worker ? RenderCount(member.samples_per_second()) : "-", static_cast<double>(member.silent_ms()) / 1000,
        member.address(), member.shards() == 0 ? "" : absl::StrCat(", ", Counted(member.shards(), "shard")),
        BackupText(status, member), member.reason().empty() ? "" : absl::StrCat(" (", member.reason(), ")"));
  }
  if (status.workers_unlisted() > 0) {
    absl::StrAppend(&out, "  and ", status.workers_unlisted(), " more workers: most of them left or died long ago\n");
  }
  return out;
}

}  // namespace slackline::cli
