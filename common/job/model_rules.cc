#include "common/job/model_rules.h"

#include "common/any_of_text.h"
#include "common/job/job_kinds.h"
#include "common/job/rule_book.h"
#include "common/job/value.h"

namespace slackline::job_file {
namespace {

// Settings that only some kinds of models have.
struct ModelSetting {
  const char* key;
  bool (*allowed)(const ModelFacts& facts);
};

constexpr ModelSetting kModelSettings[] = {
    {"model.hidden", [](const ModelFacts& facts) { return !facts.hidden.empty(); }},
    {"model.filters", [](const ModelFacts& facts) { return facts.has_filters(); }},
    {"model.batch_norm", [](const ModelFacts& facts) { return facts.has_filters(); }},
    {"model.patch_size", [](const ModelFacts& facts) { return facts.has_patches(); }},
    {"model.checkpointing", [](const ModelFacts& facts) { return facts.has_patches(); }},
    {"model.stochastic_depth", [](const ModelFacts& facts) { return facts.stochastic_depth.has_value(); }},
    {"model.dropout", [](const ModelFacts& facts) { return facts.dropout.has_value(); }},
};

class ModelRules : private RuleBook {
 public:
  using RuleBook::RuleBook;

  void Model(const job::Model& model) {
    const ModelFacts& facts = FactsOf(model);
    if (facts.has_filters() && model.filters_size() != 0 && model.filters_size() != 2) {
      Refuse("model.filters", Count(model.filters_size(), "item"), "exactly two, one for each convolution");
    }
    for (const auto& [key, allowed] : kModelSettings) {
      if (allowed(facts)) continue;
      NeedsOther(model, key, "model.kind: " + AnyOfText(AllModels(), allowed), std::string(facts.name));
    }
    if (model.init() != job::Model::TRUNCATED_NORMAL) {
      NeedsOther(model, "model.init_std", "model.init: truncated_normal",
                 EnumName(*job::Model::Init_descriptor()->FindValueByNumber(model.init())));
    }
  }

  void TorchScript(const job::Job& job) {
    const job::Model& model = job.model();
    const std::string name(FactsOf(model).name);
    if (model.kind() != job::Model::TORCHSCRIPT) {
      NeedsOther(model, "model.torchscript", "model.kind: torchscript", name);
      NeedsOther(model, "model.libraries", "model.kind: torchscript", name);
      if (job.training().loss() == job::Training::MODEL) {
        Refuse("training.loss", "model with model.kind: " + name, "model with model.kind: torchscript alone");
      }
      return;
    }
    if (model.torchscript().empty()) {
      Refuse("model.torchscript", Quoted(""), "a file that torch.jit.save has written", "model.kind");
    }
    NeedsOther(model, "model.init", "a model.kind that is known here", name);
    NeedsOther(job.worker(), "worker.precision", "a model.kind that is known here", name);
    if (job.training().loss() != job::Training::MODEL) return;
    NeedsOther(job.training(), "training.label_smoothing", "a training.loss that is known here",
               "training.loss: model");
    NeedsOther(job.training(), "training.class_weights", "a training.loss that is known here", "training.loss: model");
  }

  // A job of scripts cannot have the settings that only the C++ worker reads.
  void External(const job::Job& job) {
    if (!RunsScripts(job)) return;
    const std::string needed = "a model.kind that is known here";
    NeedsOther(job.model(), "model.classes", needed, "external");
    NeedsOther(job.model(), "model.init", needed, "external");
    NeedsOther(job.model(), "model.weights", needed, "external");
    NeedsOther(job.worker(), "worker.groups", needed, "external");
    NeedsOther(job.worker(), "worker.precision", needed, "external");
    NeedsOther(job.training(), "training.label_smoothing", needed, "external");
    NeedsOther(job.training(), "training.class_weights", needed, "external");
    NeedsOther(job.training(), "training.loss", needed, "external");
    NeedsOther(job.local(), "local.steps", needed, "external");
    NeedsOther(job.local(), "local.epochs", needed, "external");
  }
};

}  // namespace

void CheckModelRules(const job::Job& job, const std::string& name, const Origins& origins, Mistakes& mistakes) {
  ModelRules rules(name, origins, mistakes);
  rules.Model(job.model());
  rules.TorchScript(job);
  rules.External(job);
}

}  // namespace slackline::job_file
