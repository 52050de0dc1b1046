#include "common/job/self_supervised_rules.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/job/job_kinds.h"
#include "common/job/push_samples.h"
#include "common/job/rule_book.h"
#include "common/job/value.h"

namespace slackline::job_file {
namespace {

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
    if (contrastive && job.training().batch_size() < 2) {
      Refuse("training.batch_size", absl::StrCat(job.training().batch_size(), " with ", actual),
             "at least 2: an image is told from the others of its batch");
    }
  }

  void Model(const job::Model& model, const std::string& method) {
    if (FactsOf(model).built_in()) return;
    Refuse(Key("method"), absl::StrCat(method, " with model.kind: ", FactsOf(model).name),
           "none, or a model.kind that is known here");
  }

  // A batch is looked at as a whole, and the teacher moves once a push.
  void Whole(const job::Job& job, const std::string& method) {
    if (TrainsLocally(job)) {
      Refuse(Key("method"), method + " with local training", "none, or local.steps: 0 and local.epochs: 0");
    }
    const job::Worker& worker = job.worker();
    if (worker.stages() > 1) {
      Refuse(Key("method"), absl::StrCat(method, " with worker.stages: ", worker.stages()),
             "none, or worker.stages: 1");
      return;
    }
    OneCpu("worker.devices", worker.devices(), method);
    for (int i = 0; i < worker.groups_size(); ++i) {
      OneCpu(absl::StrCat("worker.groups[", i, "].devices"), worker.groups(i).devices(), method);
    }
  }

 private:
  void OneCpu(const std::string& key, const google::protobuf::RepeatedPtrField<std::string>& devices,
              const std::string& method) {
    if (devices.size() <= 1 && absl::c_all_of(devices, [](const std::string& name) { return name == "cpu"; })) return;
    Refuse(key, absl::StrCat(Count(devices.size(), "device"), " with ", Key("method: "), method),
           "[cpu] alone: a batch is not cut, and GPUs were not tried with it");
  }
};

}  // namespace

void CheckSelfSupervisedRules(const job::Job& job, const std::string& name, const Origins& origins,
                              Mistakes& mistakes) {
  SelfSupervisedRules rules(name, origins, mistakes);
  const job::SelfSupervised& section = job.training().self_supervised();
  if (section.method() == Method::NONE) return rules.Off(section);
  const std::string method = EnumName(*Method::Method_descriptor()->FindValueByNumber(section.method()));
  rules.Section(section, method);
  rules.Images(job, method);
  rules.Model(job.model(), method);
  rules.Whole(job, method);
}

}  // namespace slackline::job_file
