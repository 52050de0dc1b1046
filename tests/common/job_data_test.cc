// Settings of images in the job file: accepted values and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/job/data_formats.h"
#include "common/job/job_file.h"

namespace slackline::job_data_test {
namespace {

std::string RefusalOfData(const std::string& yaml) { return std::string(ParseJob(yaml, "j.yaml").status().message()); }

TEST(JobData, SettingsOfTheOtherFormatAreRefused) {
  EXPECT_EQ(
      RefusalOfData("data: {format: prepared, mean: 0.5}"),
      "j.yaml:1: data.mean: found a value together with prepared; allowed is only with data.format: idx, folder or "
      "webdataset (add --set data.mean=0.286 to take the default back)");
  EXPECT_EQ(RefusalOfData("data: {format: prepared, deviation: 0.5}"),
            "j.yaml:1: data.deviation: found a value together with prepared; allowed is only with data.format: idx, "
            "folder or "
            "webdataset (add --set data.deviation=0.353 to take the default back)");
  EXPECT_EQ(
      RefusalOfData("data: {evaluation_split: validation}"),
      "j.yaml:1: data.evaluation_split: found a value together with idx; allowed is only with data.format: prepared, "
      "folder, webdataset or coco (add --set data.evaluation_split=test to take the default back)");
  EXPECT_EQ(RefusalOfData("data: {test_at_end: true}"),
            "j.yaml:1: data.test_at_end: found a value together with idx; allowed is only with data.format: prepared, "
            "folder or webdataset (add --set data.test_at_end=false to take the default back)");
  EXPECT_EQ(RefusalOfData("data: {format: prepared, path: /p, test_at_end: true}"),
            "j.yaml:1: data.test_at_end: found true with data.evaluation_split: test; allowed is true only with "
            "data.evaluation_split: validation; otherwise all evaluations are on the split test");
  EXPECT_EQ(RefusalOfData("data: {format: prepared, path: /p, test_at_end: true, evaluation_split: validation}"), "");
  EXPECT_EQ(
      RefusalOfData("data: {verify: true}"),
      "j.yaml:1: data.verify: found a value together with idx; allowed is only with data.format: prepared (add --set "
      "data.verify=false to take the default back)");
}

TEST(JobData, EveryFormatHasOneRow) {
  const google::protobuf::EnumDescriptor& formats = *job::Data::Format_descriptor();
  std::vector<int> expected, found;
  for (int i = 0; i < formats.value_count(); ++i) expected.push_back(formats.value(i)->number());
  for (const job_file::DataFormatRow& row : job_file::kDataFormats) found.push_back(row.format);
  EXPECT_EQ(found, expected);
}

TEST(JobData, AServerNeedsACache) {
  EXPECT_EQ(RefusalOfData("data: {format: prepared, path: \"http://example.org:80/p\"}"),
            "j.yaml:1: data.path: found 'http://example.org:80/p' without data.cache.folder; allowed is a folder, or a "
            "server "
            "with data.cache.folder, where each node keeps what it has read");
  EXPECT_EQ(RefusalOfData("data: {path: \"http://example.org:80/p\"}"),
            "j.yaml:1: data.path: found 'http://example.org:80/p' with data.format: idx; allowed is a folder, or "
            "data.format: "
            "prepared");
  EXPECT_EQ(
      RefusalOfData("data: {format: prepared, path: \"http://example.org/p\", http_timeout_s: 3, cache: {folder: /c}}"),
      "");
  EXPECT_THAT(RefusalOfData("data: {format: prepared, http_timeout_s: 3}"),
              ::testing::HasSubstr("only with a data.path that begins with https://, http:// or ftp://"));
  EXPECT_THAT(RefusalOfData("data: {cache: {folder: /c}}"), ::testing::HasSubstr("only with data.format: prepared"));
  EXPECT_THAT(RefusalOfData("data: {format: prepared, cache: {gigabytes_max: 3}}"),
              ::testing::HasSubstr("only with data.cache.folder"));
}

TEST(JobData, AuthoritiesAreForHttpsAlone) {
  const std::string rest = ", ca_file: /ca.pem, cache: {folder: /c}}";
  EXPECT_EQ(RefusalOfData("data: {format: prepared, path: \"https://example.org/p\"" + rest), "");
  EXPECT_EQ(RefusalOfData("data: {format: prepared, path: \"ftp://example.org/p\", cache: {folder: /c}}"), "");
  EXPECT_THAT(RefusalOfData("data: {format: prepared, path: \"http://example.org/p\"" + rest),
              ::testing::HasSubstr("data.ca_file: found a value together with another protocol; allowed is only with a "
                                   "data.path that begins with https://"));
  EXPECT_THAT(RefusalOfData("data: {format: prepared, path: /p" + rest),
              ::testing::HasSubstr("data.ca_file: found a value together with a folder"));
  EXPECT_THAT(RefusalOfData("data: {format: prepared, path: \"sftp://example.org/p\", cache: {folder: /c}}"),
              ::testing::HasSubstr("there is no other protocol"));
}

TEST(JobData, FilesComeOneByOneIfThereAreFiles) {
  EXPECT_EQ(RefusalOfData("data: {format: prepared, sampling: by_file}"), "");
  EXPECT_EQ(
      RefusalOfData("data: {sampling: by_file}"),
      "j.yaml:1: data.sampling: found by_file with data.format: idx; allowed is uniform, balanced, or data.format: "
      "prepared");
  EXPECT_EQ(
      RefusalOfData("data: {format: prepared, sampling: by_file, cache: {folder: /c, peers: true}}"),
      "j.yaml:1: data.cache.peers: found true with data.sampling: by_file; allowed is false: nodes that serve each "
      "other get all files before they train");
}

TEST(JobData, NodesThatServeEachOtherNeedACacheAndSayThatNothingIsEncrypted) {
  EXPECT_EQ(RefusalOfData("data: {format: prepared, cache: {folder: /c, peers: true}, http_timeout_s: 3}"), "");
  EXPECT_THAT(RefusalOfData("data: {format: prepared, cache: {peers: true}}"),
              ::testing::HasSubstr("data.cache.peers: found a value together with no folder; allowed is only with "
                                   "data.cache.folder"));
  const std::string tls = "security: {mode: tls, folder: /f}\ndata: {format: prepared, cache: {folder: /c, peers: true";
  EXPECT_EQ(RefusalOfData(tls + "}}"),
            "j.yaml:2: data.cache.peers: found true with security.mode: tls; allowed is false, or "
            "data.cache.peers_in_clear: true: images go from node to node as plain text");
  EXPECT_EQ(RefusalOfData(tls + ", peers_in_clear: true}}"), "");
  EXPECT_THAT(RefusalOfData("data: {format: prepared, cache: {folder: /c, peers: true, peers_in_clear: true}}"),
              ::testing::HasSubstr("data.cache.peers_in_clear: found a value together with none; allowed is only with "
                                   "security.mode: tls"));
}

TEST(JobData, FilesAreSpreadOverNodesThatServeEachOther) {
  const std::string spread = "data: {format: prepared, cache: {folder: /c, peers: true, spread: true}";
  EXPECT_EQ(RefusalOfData(spread + "}"), "");
  EXPECT_THAT(RefusalOfData("data: {format: prepared, cache: {folder: /c, spread: true}}"),
              ::testing::HasSubstr(
                  "data.cache.spread: found a value together with data.cache.peers: false; allowed is only with "
                  "data.cache.peers: true"));
  EXPECT_THAT(RefusalOfData(spread + ", sampling: balanced}"),
              ::testing::HasSubstr("data.cache.spread: found true with data.sampling: balanced; allowed is false, or "
                                   "data.sampling: uniform"));
  EXPECT_THAT(RefusalOfData(spread + "}\nlocal: {epochs: 1, subset_samples: 50}\noptimizer: {lr: 1}"),
              ::testing::HasSubstr("found true with local.subset_samples: 50; allowed is false, or "
                                   "local.subset_samples: 0"));
  EXPECT_THAT(RefusalOfData(spread + "}\ntraining: {self_supervised: {method: contrastive}}"),
              ::testing::HasSubstr("found true with training.self_supervised, whose evaluations read all training "
                                   "images; allowed is false, or no self-supervised training"));
}

TEST(JobData, SubsetsOfAllImagesAreNotBalanced) {
  EXPECT_EQ(RefusalOfData("local: {epochs: 1, subset_samples: 50}\noptimizer: {lr: 1}\ndata: {sampling: balanced}"),
            "j.yaml:3: data.sampling: found balanced with local.subset_samples: 50; allowed is uniform, or "
            "local.subset_samples: 0: subsets are drawn of all images");
  EXPECT_EQ(RefusalOfData("local: {epochs: 1}\noptimizer: {lr: 1}\ndata: {sampling: balanced}"), "");
}

TEST(JobData, AModulesOwnLossKnowsNoMixedLabels) {
  EXPECT_THAT(RefusalOfData("training: {loss: model}\ndata: {augment: {mixup_alpha: 0.2}}"),
              ::testing::HasSubstr("j.yaml:2: data.augment.mixup_alpha: found a value together with training.loss: "
                                   "model; allowed is only with training.loss: cross_entropy, mse or bce"));
}

TEST(JobData, WhereANodeKeepsCopiesIsItsOwn) {
  const auto job = ParseJob("data: {format: prepared, path: /p}", "j.yaml");
  const auto other = ParseJob(
      "data: {format: prepared, path: \"https://example.org/p\", ca_file: /f, cache: {folder: /c, gigabytes_max: 1}}",
      "j.yaml");
  ASSERT_TRUE(job.ok() && other.ok());
  EXPECT_EQ(Fingerprint(*job), Fingerprint(*other));
}

TEST(JobData, DecodingIsOfPictures) {
  EXPECT_EQ(
      RefusalOfData("data: {format: prepared, decode: {size: 64}}"),
      "j.yaml:1: data.decode.size: found a value together with prepared; allowed is only with data.format: folder "
      "or webdataset (add --set data.decode.size= to take the default back)");
  EXPECT_EQ(RefusalOfData("data: {format: webdataset, decode: {size: 64, grey: true, fit: crop}}"), "");
}

constexpr char kDetector[] =
    "model: {kind: torchscript, torchscript: m.pt}\ntraining: {loss: model}\n"
    "data: {format: coco, evaluation_split: validation";

TEST(JobData, ObjectsAreForModulesThatFindThem) {
  const std::string detector = kDetector;
  EXPECT_EQ(RefusalOfData(detector + "}"), "");
  EXPECT_EQ(RefusalOfData(detector + ", augment: {flip: horizontal}, coco: {masks: false, train_images: /t}}"), "");
  EXPECT_EQ(RefusalOfData("data: {format: coco, evaluation_split: validation}"),
            "j.yaml:1: data.format: found coco with model.kind: mlp and training.loss: cross_entropy; allowed is coco "
            "with model.kind: torchscript and training.loss: model, for a module that finds objects");
  EXPECT_THAT(RefusalOfData("data: {coco: {masks: false}}"),
              ::testing::HasSubstr("data.coco.masks: found a value together with idx; allowed is only with "
                                   "data.format: coco"));
}

TEST(JobData, WhatObjectsDoNotGoWithIsRefused) {
  const std::string detector = kDetector;
  EXPECT_THAT(RefusalOfData(detector + ", augment: {flip: both}}"),
              ::testing::HasSubstr("data.augment.flip: found both with data.format: coco; allowed is none or "
                                   "horizontal: boxes and masks follow no other"));
  for (const char* augment : {"crop_padding: 2", "crop_area_min: 0.5", "brightness: 0.1", "contrast: 0.1",
                              "saturation: 0.1", "rand_augment: 1", "grey: 0.1", "blur: 0.1", "mixup_alpha: 1"}) {
    EXPECT_NE(RefusalOfData(detector + ", augment: {" + augment + "}}"), "") << augment;
  }
  for (const char* setting : {"mean: 0.5", "sampling: balanced", "verify: true", "decode: {size: 64}"}) {
    EXPECT_NE(RefusalOfData(detector + ", " + setting + "}"), "") << setting;
  }
  std::string by_loss = detector + "}";
  by_loss.replace(by_loss.find("loss: model"), 11, "loss: model, metric: {name: loss, better: lower}");
  EXPECT_THAT(RefusalOfData(by_loss), ::testing::HasSubstr("training.metric.name: found loss with data.format: coco"));
  EXPECT_THAT(RefusalOfData(detector + "}\ncheckpoint: {keep_best: 1, metric: test_loss}"),
              ::testing::HasSubstr("checkpoint.metric: found test_loss with data.format: coco"));
  const std::string test =
      "model: {kind: torchscript, torchscript: m.pt}\ntraining: {loss: model}\ndata: {format: coco";
  EXPECT_THAT(RefusalOfData(test + "}"),
              ::testing::HasSubstr("data.evaluation_split: found test without data.coco.test_annotations; allowed is "
                                   "validation, or test with a file in COCO's format"));
  EXPECT_EQ(RefusalOfData(test + ", coco: {test_images: a, test_annotations: b.json}}"), "");
}

TEST(JobData, OnlyFoldersAndFileServersAreReadFrom) {
  for (const std::string path : {"ftps://files.example.org/d", "s3://bucket/d", "HTTP://files.example.org/d"}) {
    EXPECT_EQ(RefusalOfData("data: {format: prepared, cache: {folder: /c}, path: '" + path + "'}"),
              "j.yaml:1: data.path: found '" + path +
                  "'; allowed is a folder, or https://files.example.org/FOLDER, http:// or ftp://: there is no other "
                  "protocol");
  }
  EXPECT_EQ(RefusalOfData("data: {format: prepared, cache: {folder: /c}, path: 'http://files.example.org/d'}"), "");
  EXPECT_EQ(RefusalOfData("data: {format: prepared, path: '/data/a://b'}"), "");
}

TEST(JobData, AnAddressMustBeOneThatCanBeAskedFor) {
  const auto refusal = [](const std::string& path) {
    return RefusalOfData("data: {format: prepared, cache: {folder: /c}, path: '" + path + "'}");
  };
  EXPECT_EQ(refusal("http://"),
            "j.yaml:1: data.path: found 'http://' without a host; allowed is an address such as "
            "https://files.example.org/FOLDER, or one with http:// or ftp://");
  EXPECT_EQ(refusal("http://example.org:70000/x"),
            "j.yaml:1: data.path: found the port '70000' in 'http://example.org:70000/x'; allowed is 1 to 65535, or "
            "none, which is the usual one");
  const std::string with_password = absl::StrCat("http://", "me:secret@example.org/x");
  EXPECT_THAT(refusal(with_password), ::testing::HasSubstr("a user before '@'"));
  for (const std::string& message : {refusal(with_password), RefusalOfData("data: {path: '" + with_password + "'}")}) {
    EXPECT_THAT(message, ::testing::Not(::testing::HasSubstr("secret")));
  }
  EXPECT_THAT(refusal("http:/example.org/x"), ::testing::HasSubstr("no other protocol"));
}

TEST(JobData, OtherPathsAreNoAddresses) {
  const std::string allowed = "'; allowed is a path: data.path alone, with data.format: prepared, may be an address";
  EXPECT_EQ(RefusalOfData("data: {format: prepared, path: /d, cache: {folder: 'http://example.org/c'}}"),
            "j.yaml:1: data.cache.folder: found 'http://example.org/c" + allowed);
  EXPECT_EQ(RefusalOfData("checkpoint: {folder: 's3://bucket/x'}"),
            "j.yaml:1: checkpoint.folder: found 's3://bucket/x" + allowed);
  EXPECT_EQ(RefusalOfData("model: {weights: 'https://example.org/w.safetensors'}"),
            "j.yaml:1: model.weights: found 'https://example.org/w.safetensors" + allowed);
}

TEST(JobData, AugmentationHasItsRanges) {
  EXPECT_EQ(RefusalOfData("data: {augment: {crop_area_min: 0}}"),
            "j.yaml:1: data.augment.crop_area_min: found '0'; allowed is a number from 0.01 to 1");
  EXPECT_EQ(RefusalOfData("data: {augment: {brightness: 1.5}}"),
            "j.yaml:1: data.augment.brightness: found '1.5'; allowed is a number from 0 to 1");
  EXPECT_THAT(RefusalOfData("data: {augment: {flip: sideways}}"), ::testing::HasSubstr("horizontal"));
  EXPECT_EQ(RefusalOfData("data: {augment: {rand_augment_magnitude: 5}}"),
            "j.yaml:1: data.augment.rand_augment_magnitude: found a value together with no rand_augment; allowed is "
            "only with data.augment.rand_augment above 0 (add --set data.augment.rand_augment_magnitude=9 to take the "
            "default back)");
  EXPECT_EQ(RefusalOfData("data: {augment: {rand_augment: 2, rand_augment_magnitude: 31}}"),
            "j.yaml:1: data.augment.rand_augment_magnitude: found '31'; allowed is a number from 0 to 30");
  EXPECT_EQ(RefusalOfData("data: {augment: {mixup_alpha: -1}}"),
            "j.yaml:1: data.augment.mixup_alpha: found '-1'; allowed is a number from 0 to 100");
  EXPECT_EQ(RefusalOfData("data: {augment: {mixup_alpha: 1e-308}}"),
            "j.yaml:1: data.augment.mixup_alpha: found 1e-308; allowed is 0, or a number from 0.001 to 100");
  EXPECT_THAT(RefusalOfData("data: {augment: {cutmix_alpha: 0.00075}}"),
              ::testing::HasSubstr("data.augment.cutmix_alpha: found 0.00075; allowed is 0, or a number from 0.001"));
  EXPECT_EQ(RefusalOfData("data: {augment: {mixup_alpha: 0.001, cutmix_alpha: 0.001}}"), "");
}

TEST(JobData, OnlyAFingerprintCanBeReplaced) {
  EXPECT_EQ(RefusalOfData("data: {replaces: 00ab34cd56ef7890}"), "");
  for (const std::string other : {"00ab", "00AB34CD56EF7890", "00ab34cd56ef789g"}) {
    EXPECT_EQ(RefusalOfData("data: {replaces: '" + other + "'}"),
              "j.yaml:1: data.replaces: found '" + other +
                  "'; allowed is a fingerprint as a resume names it: 16 digits of 0 to 9, a to f");
  }
}

TEST(JobData, WrittenOutItIsTheSame) {
  const absl::StatusOr<job::Job> job = ParseJob(
      "data: {format: prepared, path: /p, evaluation_split: validation, verify: true, augment: {flip: both, "
      "crop_padding: 4}}",
      "j.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::StatusOr<job::Job> back = ParseJob(ToYaml(*job), "resolved.yaml");
  ASSERT_TRUE(back.ok()) << back.status() << "\n" << ToYaml(*job);
  EXPECT_EQ(Fingerprint(*back), Fingerprint(*job));
  EXPECT_EQ(back->data().augment().crop_padding(), 4u);
}

}  // namespace
}  // namespace slackline::job_data_test
