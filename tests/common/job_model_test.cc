// Settings of models and their loss in the job file: accepted values and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/job/job_file.h"
#include "common/job/job_kinds.h"
#include "common/job/metric_names.h"
#include "common/optimizer/optimizer.h"

namespace slackline::job_model_test {
namespace {

std::string Refusal(const std::string& yaml) { return std::string(ParseJob(yaml, "j.yaml").status().message()); }

TEST(JobModel, EachKindHasAnEntryWithItsNameAndNumber) {
  const google::protobuf::EnumDescriptor& kinds = *job::Model::Kind_descriptor();
  EXPECT_EQ(AllModels().size(), static_cast<size_t>(kinds.value_count()));
  for (const ModelFacts& facts : AllModels()) {
    const auto* kind = kinds.FindValueByNumber(static_cast<int>(facts.kind));
    ASSERT_NE(kind, nullptr) << facts.name;
    EXPECT_EQ(absl::AsciiStrToLower(kind->name()), facts.name);
    EXPECT_EQ(&FactsOf(facts.kind), &facts) << "two entries of one kind";
  }
}

TEST(JobModel, EachOptimizerHasAnEntryWithItsNameAndNumber) {
  for (const google::protobuf::EnumDescriptor* kinds :
       {job::Optimizer::Kind_descriptor(), job::Local::Optimizer_descriptor()}) {
    EXPECT_EQ(AllOptimizers().size(), static_cast<size_t>(kinds->value_count()));
    for (const OptimizerFacts& facts : AllOptimizers()) {
      const auto* kind = kinds->FindValueByNumber(static_cast<int>(facts.kind));
      ASSERT_NE(kind, nullptr) << facts.name;
      EXPECT_EQ(absl::AsciiStrToLower(kind->name()), facts.name);
      EXPECT_EQ(&FactsOf(facts.kind), &facts) << "two entries of one kind";
    }
  }
}

TEST(JobModel, EachConsistencyModeHasAnEntryWithItsNameAndNumber) {
  const google::protobuf::EnumDescriptor& modes = *job::Consistency::Mode_descriptor();
  EXPECT_EQ(AllModes().size(), static_cast<size_t>(modes.value_count()));
  for (const ModeFacts& facts : AllModes()) {
    const auto* mode = modes.FindValueByNumber(static_cast<int>(facts.mode));
    ASSERT_NE(mode, nullptr) << facts.name;
    EXPECT_EQ(absl::AsciiStrToLower(mode->name()), facts.name);
    EXPECT_EQ(&FactsOf(facts.mode), &facts) << "two entries of one mode";
  }
}

TEST(JobModel, TheMetricIsOneThatEvaluationsCanHave) {
  for (const char* const sound : {"", "training: {metric: {name: loss, better: lower}}",
                                  "model: {kind: external}\ntraining: {metric: {name: perplexity, better: lower}}",
                                  "model: {kind: external}\ntraining: {metric: {name: f1_macro2}}"}) {
    EXPECT_TRUE(ParseJob(sound, "j.yaml").ok()) << sound << ParseJob(sound, "j.yaml").status();
  }
  EXPECT_EQ(Refusal("model: {kind: mlp}\ntraining: {metric: {name: perplexity}}"),
            "j.yaml:2: training.metric.name: found 'perplexity' with model.kind: mlp; allowed is accuracy or loss, or "
            "another name with model.kind: external: only scripts report other figures");
  EXPECT_EQ(Refusal("training: {metric: {name: loss}}"),
            "j.yaml:1: training.metric.better: found higher with training.metric.name: loss; allowed is lower: less "
            "loss is better");
  EXPECT_EQ(
      Refusal("training: {metric: {better: lower}}"),
      "j.yaml:1: training.metric.better: found lower with training.metric.name: accuracy; allowed is higher: more "
      "accuracy is better");
  for (const char* const name : {"''", "Perplexity", "top-5", "5_gram", "_f1", "\"f 1\""}) {
    EXPECT_THAT(Refusal(absl::StrCat("model: {kind: external}\ntraining: {metric: {name: ", name, "}}")),
                ::testing::HasSubstr("allowed is a name of at most 64 characters: a to z, then a to z, 0 to 9 and _"));
  }
  EXPECT_FALSE(CheckMetricName(std::string(kMetricNameMax + 1, 'a')).ok());
  EXPECT_TRUE(CheckMetricName(std::string(kMetricNameMax, 'a')).ok());
}

TEST(JobModel, SettingsOfOtherModelsAreRefused) {
  EXPECT_EQ(
      Refusal("model: {kind: resnet50, patch_size: 8}"),
      "j.yaml:1: model.patch_size: found a value together with resnet50; allowed is only with model.kind: vit_tiny, "
      "vit_small or vit_base (add --set model.patch_size=16 to take the default back)");
  EXPECT_EQ(Refusal("model: {kind: resnet34, dropout: 0.1}"),
            "j.yaml:1: model.dropout: found a value together with resnet34; allowed is only with model.kind: "
            "efficientnet_b0, texture_cnn_2, vit_tiny, vit_small or vit_base (add --set model.dropout=-1 to take the "
            "default back)");
  EXPECT_EQ(Refusal("model: {kind: texture_cnn_2, stochastic_depth: 0.1}"),
            "j.yaml:1: model.stochastic_depth: found a value together with texture_cnn_2; allowed is only with "
            "model.kind: efficientnet_b0, vit_tiny, vit_small or vit_base (add --set model.stochastic_depth=-1 to take "
            "the default back)");
  EXPECT_EQ(Refusal("model: {init: kaiming_normal, init_std: 0.1}"),
            "j.yaml:1: model.init_std: found a value together with kaiming_normal; allowed is only with model.init: "
            "truncated_normal (add --set model.init_std=0.02 to take the default back)");
}

TEST(JobModel, GroupsOfParametersMakeSense) {
  EXPECT_EQ(
      ParseJob("optimizer: {ema: 0.999, groups: [{match: '*.bias', weight_decay: 0}, {match: fc1.*, frozen: true}]}",
               "j.yaml")
          .status(),
      absl::OkStatus());
  EXPECT_EQ(Refusal("optimizer: {groups: [{frozen: true}]}"),
            "j.yaml:1: optimizer.groups[0].match: found ''; allowed is names of tensors, such as \"*.bias\"");
  EXPECT_EQ(Refusal("optimizer: {groups: [{match: a, frozen: true, lr_factor: 2}]}"),
            "j.yaml:1: optimizer.groups[0].frozen: found true together with lr_factor or weight_decay; allowed is true "
            "alone: what is frozen is not changed");
  EXPECT_EQ(Refusal("model: {kind: external}\noptimizer: {groups: [{match: a, frozen: true}]}"),
            "j.yaml:2: optimizer.groups[0].frozen: found true with model.kind: external; allowed is false; a script "
            "freezes by requires_grad_(False), and says it that way");
  EXPECT_EQ(Refusal("worker: {stages: 2, devices: [cpu, cpu]}\noptimizer: {groups: [{match: a, frozen: true}]}"),
            "j.yaml:2: optimizer.groups[0].frozen: found true with worker.stages: 2; allowed is true with "
            "worker.stages: 1");
  EXPECT_EQ(Refusal("optimizer: {ema: 1}"),
            "j.yaml:1: optimizer.ema: found '1'; allowed is a number from 0 to 0.9999999");
  EXPECT_THAT(Refusal("model: {checkpointing: true}"),
              testing::HasSubstr("model.checkpointing: found a value together with mlp"));
}

TEST(JobModel, TrainingWithoutLabelsGoesWithWhatItCan) {
  const std::string views = "\ndata: {augment: {crop_padding: 2}}\ntraining: {self_supervised: {method: ";
  const auto refusal = [&](const std::string& settings, const std::string& rest = "", const std::string& more = "") {
    return Refusal("name: a" + views + settings + "}" + more + "}\n" + rest);
  };
  EXPECT_EQ(refusal("contrastive, views: 4, temperature: 0.5, projection: [64, 32], neighbours: {count: 5}"), "");
  EXPECT_EQ(refusal("self_distillation, teacher_momentum: 0.9", "optimizer: {ema: 0.9}"), "");
  const auto refuses = [&](const std::string& words, const std::string& found) {
    EXPECT_THAT(found, testing::HasSubstr(words));
  };
  refuses("training.self_supervised.views: found a value together with none", refusal("none, views: 3"));
  refuses("training.self_supervised.neighbours.count: found a value together with none",
          refusal("none, neighbours: {count: 3}"));
  refuses("training.self_supervised.temperature: found a value together with self_distillation",
          refusal("self_distillation, temperature: 0.5"));
  refuses("training.self_supervised.teacher_momentum: found a value together with contrastive",
          refusal("contrastive, teacher_momentum: 0.9"));
  refuses("training.self_supervised.projection: found 1 item; allowed is exactly two",
          refusal("contrastive, projection: [64]"));
  refuses("training.self_supervised.views: found '1'; allowed is a whole number from 2 to 16",
          refusal("contrastive, views: 1"));
  refuses("data.augment: found nothing that varies images",
          Refusal("training: {self_supervised: {method: contrastive}}"));
  refuses("training.label_smoothing: found a value together with training.self_supervised.method: contrastive",
          refusal("contrastive", "", ", label_smoothing: 0.1"));
  refuses("training.loss: found a value", refusal("contrastive", "", ", loss: mse"));
  refuses("training.class_weights: found a value", refusal("contrastive", "", ", class_weights: balanced"));
  refuses("training.batch_size: found 1 with training.self_supervised.method: contrastive; allowed is at least 2",
          refusal("contrastive", "", ", batch_size: 1"));
  EXPECT_EQ(refusal("self_distillation", "", ", batch_size: 1"), "");
  refuses(
      "data.sampling: found balanced with",
      Refusal("data: {sampling: balanced, augment: {flip: both}}\ntraining: {self_supervised: {method: contrastive}}"));
  refuses("data.augment.mixup_alpha: found a value",
          Refusal("data: {augment: {flip: both, mixup_alpha: 1}}\ntraining: {self_supervised: {method: contrastive}}"));
  EXPECT_EQ(refusal("self_distillation", "local: {steps: 4}\noptimizer: {lr: 1}"), "");
  refuses("training.self_supervised.method: found contrastive with worker.stages: 2",
          refusal("contrastive", "worker: {stages: 2, devices: [cpu, cpu]}"));
  EXPECT_EQ(refusal("self_distillation", "worker: {devices: ['cuda:0', 'cuda:1']}"), "");
  EXPECT_EQ(refusal("contrastive", "worker: {devices: [cpu, cpu]}", ", batch_size: 4"), "");
  refuses(
      "training.batch_size: found 3 with training.self_supervised.method: contrastive and 2 devices; allowed is at "
      "least 4: an image is told from the others of its device's part",
      refusal("contrastive", "worker: {groups: [{devices: [cpu]}, {devices: [cpu, cpu]}]}", ", batch_size: 3"));
  refuses("worker.groups[1].batch: found 3 with training.self_supervised.method: contrastive and 2 devices",
          refusal("contrastive", "worker: {groups: [{devices: [cpu]}, {devices: [cpu, cpu], batch: 3}]}"));
  refuses("training.self_supervised.method: found contrastive with model.kind: external",
          refusal("contrastive", "model: {kind: external}"));
}

TEST(JobModel, HeadsBeginAsTheirPapersHaveThem) {
  const auto projection = [](const std::string& method) {
    const auto job =
        ParseJob("data: {augment: {flip: both}}\ntraining: {self_supervised: {method: " + method + "}}", "j.yaml");
    EXPECT_TRUE(job.ok()) << job.status();
    const job::Job resolved = Resolve(*job);
    const auto& found = resolved.training().self_supervised().projection();
    return std::vector<uint32_t>(found.begin(), found.end());
  };
  EXPECT_THAT(projection("contrastive"), testing::ElementsAre(2048, 128));
  EXPECT_THAT(projection("self_distillation"), testing::ElementsAre(4096, 256));
  EXPECT_THAT(projection("none"), testing::IsEmpty());
}

TEST(JobModel, NumbersOutOfRangeAreRefused) {
  EXPECT_EQ(Refusal("model: {kind: vit_tiny, dropout: 1}"),
            "j.yaml:1: model.dropout: found '1'; allowed is a number from -1 to 0.99");
  EXPECT_EQ(Refusal("training: {label_smoothing: 1}"),
            "j.yaml:1: training.label_smoothing: found '1'; allowed is a number from 0 to 0.99");
  EXPECT_EQ(Refusal("model: {kind: vit_tiny, patch_size: 0}"),
            "j.yaml:1: model.patch_size: found '0'; allowed is a whole number from 1 to 4096");
}

TEST(JobModel, StagesAreForChains) {
  EXPECT_EQ(Refusal("model: {kind: efficientnet_b0}\nworker: {stages: 2, devices: [cpu, cpu]}"),
            "j.yaml:2: worker.stages: found 2 with model.kind: efficientnet_b0; allowed is 1, or model.kind: mlp, cnn, "
            "vit_tiny, vit_small or vit_base");
}

TEST(JobModel, ScriptsHaveModelsOfTheirOwn) {
  EXPECT_EQ(ParseJob("model: {kind: external}\ntraining: {accumulate: 2}\nwire: {encoding: bf16}", "j.yaml").status(),
            absl::OkStatus());
  // A script has optimizers of its own for both ends of a round.
  EXPECT_EQ(ParseJob("model: {kind: external}\nlocal: {steps: 4, outlier_factor: 3}", "j.yaml").status(),
            absl::OkStatus());
  EXPECT_EQ(Refusal("model: {kind: external, classes: 3}"),
            "j.yaml:1: model.classes: found a value together with external; allowed is only with a model.kind that is "
            "known here (add --set model.classes=10 to take the default back)");
  for (const std::string setting :
       {"model: {kind: external, init: xavier_uniform}", "model: {kind: external, hidden: [3]}",
        "{model: {kind: external}, training: {label_smoothing: 0.1}}",
        "{model: {kind: external}, training: {loss: mse}}",
        "{model: {kind: external}, training: {class_weights: balanced}}",
        "{model: {kind: external}, local: {steps: 4, lr: 0.1}}", "{model: {kind: external}, local: {epochs: 2}}"}) {
    EXPECT_THAT(Refusal(setting), testing::HasSubstr("found a value together with external")) << setting;
  }
}

TEST(JobModel, ClassWeightsAreBalancedOrOneAClass) {
  EXPECT_EQ(Refusal("training: {class_weights: [1, 2]}"),
            "j.yaml:1: training.class_weights: found 2 items; allowed is balanced, or as many as model.classes (10)");
  const std::string allowed = "; allowed is balanced alone, or numbers from 0 to 1000000";
  EXPECT_EQ(
      Refusal("model: {classes: 2}\ntraining: {class_weights: [0, 0]}"),
      "j.yaml:2: training.class_weights: found zeros alone; allowed is at least one above 0: else nothing is learned");
  EXPECT_EQ(Refusal("training: {class_weights: even}"), "j.yaml:1: training.class_weights: found 'even'" + allowed);
  EXPECT_EQ(Refusal("model: {classes: 2}\ntraining: {class_weights: [balanced, 1]}"),
            "j.yaml:2: training.class_weights: found 'balanced'" + allowed);
  for (const char* weight : {"-1", "nan", "inf", "1e7"}) {
    EXPECT_EQ(Refusal(std::string("model: {classes: 2}\ntraining: {class_weights: [1, ") + weight + "]}"),
              std::string("j.yaml:2: training.class_weights: found '") + weight + "'" + allowed);
  }
}

TEST(JobModel, WrittenOutItIsTheSame) {
  for (const char* text :
       {"model: {kind: vit_small, patch_size: 8, dropout: 0.1, stochastic_depth: 0.2, init: truncated_normal}",
        "model: {kind: texture_cnn_2}", "training: {class_weights: balanced, label_smoothing: 0.1}",
        "model: {kind: efficientnet_b0, classes: 2}\ntraining: {class_weights: [1, 0.5]}"}) {
    const absl::StatusOr<job::Job> job = ParseJob(text, "j.yaml");
    ASSERT_TRUE(job.ok()) << job.status();
    const absl::StatusOr<job::Job> back = ParseJob(ToYaml(*job), "resolved.yaml");
    ASSERT_TRUE(back.ok()) << back.status() << "\n" << ToYaml(*job);
    EXPECT_EQ(Fingerprint(*back), Fingerprint(*job)) << ToYaml(*job);
    EXPECT_EQ(ToYaml(*back), ToYaml(*job));
  }
}

TEST(JobModel, ResolveNamesTheLayersOfTextureCnn) {
  EXPECT_THAT(Resolve(*ParseJob("model: {kind: texture_cnn_2}", "j")).model().hidden(),
              ::testing::ElementsAre(4096, 4096));
}

}  // namespace
}  // namespace slackline::job_model_test
