// Errors in a job that are known before a worker begins.
#include "worker/settings/job_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/job/job_file.h"

namespace slackline::worker::job_checks_test {
namespace {

absl::Status Checked(const std::string& yaml) {
  const absl::StatusOr<job::Job> job = ParseJob(yaml, "j.yaml");
  EXPECT_TRUE(job.ok()) << job.status();
  return CheckJob(*job);
}

std::string Refusal(const std::string& yaml) { return std::string(Checked(yaml).message()); }

TEST(JobChecks, GroupsThatMatchNothingAreRefusedInTheWordsOfAWorker) {
  const std::string names = "they are fc1.weight, fc1.bias, fc2.weight, fc2.bias";
  EXPECT_EQ(Refusal("optimizer: {groups: [{match: fc1.*, lr_factor: 2}, {match: conv*, frozen: true}]}"),
            "optimizer.groups[1].match: found \"conv*\", which matches none of the parameters (* stands for any text, "
            "? for one letter); " +
                names);
  EXPECT_EQ(Refusal("optimizer: {groups: [{match: 'fc?.*'}, {match: fc1.bias, frozen: true}]}"),
            "optimizer.groups[1].match: found \"fc1.bias\", but groups before it match all that it does; allowed is an "
            "earlier place in the list: fc1.bias");
  EXPECT_EQ(Refusal("optimizer: {groups: [{match: '*', frozen: true}]}"),
            "optimizer.groups: all parameters are frozen; at least one must be trained");
  EXPECT_EQ(Refusal("wire: {groups: [{match: '*.bais', encoding: fp32}]}"),
            "wire.groups[0].match: found \"*.bais\", which no trained tensor is called; " + names);
  EXPECT_EQ(Refusal("optimizer: {groups: [{match: fc1.*, frozen: true}]}\nwire: {groups: [{match: fc1.*}]}"),
            "wire.groups[0].match: found \"fc1.*\", which no trained tensor is called; they are fc2.weight, fc2.bias")
      << "what is frozen is not pushed";
}

TEST(JobChecks, LayersFollowTheJob) {
  const std::string groups = "optimizer: {groups: [{match: fc4.bias, lr_factor: 2}]}";
  EXPECT_EQ(Checked("model: {hidden: [8, 8, 8]}\n" + groups), absl::OkStatus());
  EXPECT_FALSE(Checked("model: {hidden: [8, 8]}\n" + groups).ok());
  const std::string normed = "optimizer: {groups: [{match: bn2.*, frozen: true}]}";
  EXPECT_EQ(Checked("model: {kind: cnn, batch_norm: true}\n" + normed), absl::OkStatus());
  EXPECT_FALSE(Checked("model: {kind: cnn}\n" + normed).ok());
  const std::string head = "optimizer: {groups: [{match: projection.*, lr_factor: 2}]}";
  EXPECT_EQ(
      Checked("data: {augment: {crop_padding: 2}}\ntraining: {self_supervised: {method: contrastive}}\nmodel: {kind: "
              "resnet18}\n" +
              head),
      absl::OkStatus());
  EXPECT_FALSE(Checked("model: {kind: resnet18}\n" + head).ok());
}

TEST(JobChecks, EveryModelIsKnownWhateverItsImages) {
  const google::protobuf::EnumDescriptor& kinds = *job::Model::Kind_descriptor();
  for (int i = 0; i < kinds.value_count(); ++i) {
    job::Job job;
    job.mutable_model()->set_kind(static_cast<job::Model::Kind>(kinds.value(i)->number()));
    EXPECT_EQ(CheckJob(Resolve(job)), absl::OkStatus()) << kinds.value(i)->name();
  }
  EXPECT_EQ(Checked("model: {kind: vit_tiny, patch_size: 7}\noptimizer: {groups: [{match: pos_embed}]}"),
            absl::OkStatus());
}

TEST(JobChecks, ASizeOfDecodedPicturesIsUnderstoodAndFitsTheModel) {
  const std::string folder = "data: {format: folder, path: /d, decode: {size: ";
  EXPECT_EQ(Checked(folder + "64x48}}"), absl::OkStatus());
  for (const std::string size : {"0x0", "64x", "x64", "64x64x64", "-3", "9000", "large"}) {
    EXPECT_EQ(Refusal(folder + "'" + size + "'}}"),
              "found data.decode.size " + size + "; allowed are N or WIDTHxHEIGHT, with sides of 1 to 8192 pixels");
  }
  EXPECT_EQ(Refusal(folder + "40}}\nmodel: {kind: vit_tiny, patch_size: 16}"),
            "model.patch_size is 16, images are 40x40; allowed is what divides both: 1, 2, 4, 5, 8, 10, 20, 40");
}

TEST(JobChecks, EachStageNeedsALayer) {
  const std::string worker = "\nworker: {stages: 3, devices: [cpu, cpu, cpu]}";
  EXPECT_EQ(Checked("model: {hidden: [8, 8]}" + worker), absl::OkStatus());
  EXPECT_EQ(Refusal("model: {hidden: [8]}" + worker),
            "worker.stages is 3; the model has 2 layers, and a stage needs one");
}

TEST(JobChecks, WhatOthersBuildIsNotKnown) {
  const std::string groups = "\noptimizer: {groups: [{match: nothing.*, lr_factor: 2}]}";
  EXPECT_EQ(Checked("model: {kind: external}" + groups), absl::OkStatus());
  EXPECT_EQ(Checked("model: {kind: torchscript, torchscript: m.pt}" + groups), absl::OkStatus());
}

TEST(JobChecks, EachDeviceNeedsImagesToCompare) {
  const auto check = [](const std::string& settings, size_t devices) {
    const auto job = ParseJob("data: {augment: {crop_padding: 2}}\n" + settings, "j.yaml");
    EXPECT_TRUE(job.ok()) << job.status();
    return std::string(
        CheckParts(MakeWorkerConfig(Resolve(*job), {.name = "worker-1"}, /*cores=*/1), devices).message());
  };
  const std::string small = "training: {batch_size: 15, self_supervised: {method: contrastive}}";
  EXPECT_EQ(check(small, 7), "");
  EXPECT_EQ(
      check(small, 8),
      "training.batch_size: found 15 with training.self_supervised.method: contrastive and 8 devices; allowed is at "
      "least 16, or fewer devices: each compares its part of a batch");
  EXPECT_EQ(check("training: {batch_size: 15, self_supervised: {method: self_distillation}}", 8), "");
  EXPECT_EQ(check("training: {batch_size: 15}", 8), "");
}

// As those who have not resolved it ask.
TEST(JobChecks, FillInWhatTheModelDecides) {
  EXPECT_EQ(Checked("model: {kind: resnet18}\ndata: {augment: {crop_padding: 2}}\n"
                    "training: {self_supervised: {method: contrastive}}"),
            absl::OkStatus());
}

}  // namespace
}  // namespace slackline::worker::job_checks_test
