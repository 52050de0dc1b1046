#include "common/job/coco_rules.h"

#include "absl/strings/str_cat.h"
#include "common/job/data_formats.h"
#include "common/job/job_kinds.h"
#include "common/job/metric_names.h"
#include "common/job/rule_book.h"
#include "common/job/value.h"

namespace slackline::job_file {
namespace {

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

}  // namespace

void CheckCocoRules(const job::Job& job, const std::string& name, const Origins& origins, Mistakes& mistakes) {
  CocoRules rules(name, origins, mistakes);
  if (!Takes(job.data().format(), kObjects)) return rules.NotCoco(job.data());
  // A script brings its own data.
  if (!RunsScripts(job)) rules.Coco(job);
}

}  // namespace slackline::job_file
