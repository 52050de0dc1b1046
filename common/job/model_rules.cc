#include "common/job/model_rules.h"

#include <algorithm>
#include <string_view>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/job/data_formats.h"
#include "common/job/job_kinds.h"
#include "common/job/metric_names.h"
#include "common/job/push_samples.h"
#include "common/job/rule_book.h"
#include "common/job/value.h"
#include "common/text/any_of_text.h"

namespace slackline::job_file {
namespace {

// Settings that only some kinds of models have.
struct ModelSetting {
  const char* key;
  bool (*allowed)(const ModelFacts& facts);
};

// Fields of `local` that a round of a script's own steps has, too.
constexpr std::string_view kLocalOfScripts[] = {"steps", "outlier_factor", "lease_s"};

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
    if (!TrainsLocally(job)) return;
    const google::protobuf::Descriptor& local = *job::Local::descriptor();
    for (int i = 0; i < local.field_count(); ++i) {
      const std::string& field = local.field(i)->name();
      if (absl::c_linear_search(kLocalOfScripts, field)) continue;
      NeedsOther(job.local(), absl::StrCat("local.", field),
                 needed + ", since a script has an inner optimizer of its own", "external");
    }
  }
};

class CocoRules : private RuleBook {
 public:
  using RuleBook::RuleBook;

  void NotCoco(const job::Data& data) {
    const std::string format = EnumName(*job::Data::Format_descriptor()->FindValueByNumber(data.format()));
    const google::protobuf::Descriptor& fields = *job::Coco::descriptor();
    for (int i = 0; i < fields.field_count(); ++i) {
      NeedsOther(data.coco(), absl::StrCat("data.coco.", fields.field(i)->name()), FormatsThatTake(kObjects), format);
    }
  }

  void Coco(const job::Job& job) {
    const job::Data& data = job.data();
    if (job.model().kind() != job::Model::TORCHSCRIPT || job.training().loss() != job::Training::MODEL) {
      const std::string loss = EnumName(*job::Training::Loss_descriptor()->FindValueByNumber(job.training().loss()));
      Refuse("data.format",
             absl::StrCat("coco with model.kind: ", FactsOf(job.model()).name, " and training.loss: ", loss),
             "coco with model.kind: torchscript and training.loss: model, for a module that finds objects");
    }
    if (data.coco().train_annotations().empty()) {
      Refuse("data.coco.train_annotations", Quoted(""), "a file in COCO's format", "data.format");
    }
    Evaluations(job);
    NeedsOther(data, "data.sampling", FormatsThatTake(kVariation), "coco");
    if (data.augment().flip() == job::Augment::VERTICAL || data.augment().flip() == job::Augment::BOTH) {
      Refuse("data.augment.flip",
             absl::StrCat(EnumName(*job::Augment::Flip_descriptor()->FindValueByNumber(data.augment().flip())),
                          " with data.format: coco"),
             "none or horizontal: boxes and masks follow no other");
    }
    // Mixed batches no module's own loss takes.
    for (const char* key :
         {"crop_padding", "crop_area_min", "brightness", "contrast", "saturation", "rand_augment", "grey", "blur"}) {
      NeedsOther(data.augment(), absl::StrCat("data.augment.", key), FormatsThatTake(kVariation), "coco");
    }
  }

 private:
  void Evaluations(const job::Job& job) {
    const job::Coco& coco = job.data().coco();
    const bool test = job.data().evaluation_split() == job::Data::TEST;
    if ((test ? coco.test_annotations() : coco.validation_annotations()).empty()) {
      Refuse("data.evaluation_split",
             absl::StrCat(test ? "test without data.coco.test_annotations"
                               : "validation without data.coco.validation_annotations"),
             test ? "validation, or test with a file in COCO's format" : "that with a file in COCO's format",
             "data.format");
    }
    if (job.training().metric().name() == kLossMetric) {
      Refuse("training.metric.name", "loss with data.format: coco",
             "accuracy, which is the mean average precision: evaluations have no loss");
    }
    if (job.training().early_stopping().metric() == job::Metric::TEST_LOSS) {
      Refuse("training.early_stopping.metric", "test_loss with data.format: coco",
             "test_accuracy, which is the mean average precision: evaluations have no loss");
    }
    if (job.checkpoint().metric() == job::Metric::TEST_LOSS) {
      Refuse("checkpoint.metric", "test_loss with data.format: coco",
             "test_accuracy, which is the mean average precision: evaluations have no loss");
    }
  }
};

using Method = job::SelfSupervised;

constexpr char kSection[] = "training.self_supervised";

std::string Key(const std::string& name) { return absl::StrCat(kSection, ".", name); }

bool Varies(const job::Augment& augment) {
  return augment.flip() != job::Augment::NONE || augment.crop_padding() > 0 || augment.crop_area_min() < 1 ||
         augment.brightness() > 0 || augment.contrast() > 0 || augment.saturation() > 0 || augment.rand_augment() > 0 ||
         augment.grey() > 0 || augment.blur() > 0;
}

class SelfSupervisedRules : private RuleBook {
 public:
  using RuleBook::RuleBook;

  // Labels are learned from: the rest of the section would do nothing.
  void Off(const job::SelfSupervised& section) {
    const std::string needed = Key("method: contrastive or self_distillation");
    for (const char* key : {"views", "temperature", "projection", "teacher_momentum"}) {
      NeedsOther(section, Key(key), needed, "none");
    }
    for (const char* key : {"count", "temperature", "train_images_max"}) {
      NeedsOther(section.neighbours(), Key(absl::StrCat("neighbours.", key)), needed, "none");
    }
  }

  void Section(const job::SelfSupervised& section, const std::string& method) {
    if (section.method() != Method::CONTRASTIVE) {
      NeedsOther(section, Key("temperature"), Key("method: contrastive"), method);
    }
    if (section.method() != Method::SELF_DISTILLATION) {
      NeedsOther(section, Key("teacher_momentum"), Key("method: self_distillation"), method);
    }
    if (section.projection_size() != 0 && section.projection_size() != 2) {
      Refuse(Key("projection"), Count(section.projection_size(), "item"),
             "exactly two, the units of the hidden layer and of the outputs");
    }
  }

  void Images(const job::Job& job, const std::string& method) {
    const std::string needed = Key("method: none"), actual = Key("method: ") + method;
    for (const char* key : {"loss", "label_smoothing", "class_weights"}) {
      NeedsOther(job.training(), absl::StrCat("training.", key), needed, actual);
    }
    for (const char* key : {"mixup_alpha", "cutmix_alpha"}) {
      NeedsOther(job.data().augment(), absl::StrCat("data.augment.", key), needed, actual);
    }
    if (job.data().sampling() == job::Data::BALANCED) {
      Refuse("data.sampling", "balanced with " + actual, "uniform: balanced goes by labels");
    }
    if (!Varies(job.data().augment())) {
      Refuse("data.augment", "nothing that varies images with " + actual,
             "at least one setting that does: else all views of an image are the same", kSection);
    }
    const bool contrastive = job.training().self_supervised().method() == Method::CONTRASTIVE;
    if (contrastive) Others(job, actual);
  }

  // An image is told from the others of its device's part of a batch.
  void Others(const job::Job& job, const std::string& actual) {
    const uint32_t usual = job.training().batch_size();
    if (job.worker().groups_size() == 0) Enough("training.batch_size", usual, job.worker().devices_size(), actual);
    for (int i = 0; i < job.worker().groups_size(); ++i) {
      const job::WorkerGroup& group = job.worker().groups(i);
      const bool own = group.batch() > 0;
      Enough(own ? absl::StrCat("worker.groups[", i, "].batch") : "training.batch_size", own ? group.batch() : usual,
             group.devices_size(), actual);
    }
  }

  void Enough(const std::string& key, uint32_t batch, int devices, const std::string& actual) {
    const uint32_t least = 2 * static_cast<uint32_t>(std::max(1, devices));
    if (batch >= least) return;
    const std::string of = devices > 1 ? absl::StrCat(" and ", Count(devices, "device")) : "";
    Refuse(key, absl::StrCat(batch, " with ", actual, of),
           absl::StrCat("at least ", least, ": an image is told from the others of its ",
                        devices > 1 ? "device's part of a batch" : "batch"));
  }

  void Model(const job::Model& model, const std::string& method) {
    if (FactsOf(model).built_in()) return;
    Refuse(Key("method"), absl::StrCat(method, " with model.kind: ", FactsOf(model).name),
           "none, or a model.kind that is known here");
  }

  // A last stage sees its part of a batch only.
  void Whole(const job::Worker& worker, const std::string& method) {
    if (worker.stages() <= 1) return;
    Refuse(Key("method"), absl::StrCat(method, " with worker.stages: ", worker.stages()), "none, or worker.stages: 1");
  }
};

}  // namespace

void CheckModelRules(const job::Job& job, const std::string& name, const Origins& origins, Mistakes& mistakes) {
  ModelRules rules(name, origins, mistakes);
  rules.Model(job.model());
  rules.TorchScript(job);
  rules.External(job);
}

void CheckCocoRules(const job::Job& job, const std::string& name, const Origins& origins, Mistakes& mistakes) {
  CocoRules rules(name, origins, mistakes);
  if (!Takes(job.data().format(), kObjects)) return rules.NotCoco(job.data());
  // A script brings its own data.
  if (!RunsScripts(job)) rules.Coco(job);
}

void CheckSelfSupervisedRules(const job::Job& job, const std::string& name, const Origins& origins,
                              Mistakes& mistakes) {
  SelfSupervisedRules rules(name, origins, mistakes);
  const job::SelfSupervised& section = job.training().self_supervised();
  if (section.method() == Method::NONE) return rules.Off(section);
  const std::string method = EnumName(*Method::Method_descriptor()->FindValueByNumber(section.method()));
  rules.Section(section, method);
  rules.Images(job, method);
  rules.Model(job.model(), method);
  rules.Whole(job.worker(), method);
}

}  // namespace slackline::job_file
