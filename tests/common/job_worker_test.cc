// Settings of groups of devices in the job file: accepted values and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/job/job_file.h"
#include "common/job/push_samples.h"

namespace slackline::job_worker_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct BadWorker {
  const char* name;
  const char* yaml;
  const char* message;
};

class JobWorker : public ::testing::TestWithParam<BadWorker> {};

TEST_P(JobWorker, WhatCannotBeIsRefused) {
  EXPECT_EQ(std::string(ParseJob(GetParam().yaml, "j.yaml").status().message()), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Groups, JobWorker,
    ::testing::Values(
        BadWorker{"NoList", "worker: {groups: cpu}",
                  "j.yaml:1: worker.groups: found 'cpu'; allowed is a list of sections of keys: devices, batch, cores, "
                  "precision"},
        BadWorker{"PerNodeWithoutScripts", "worker: {per_node: 2}",
                  "j.yaml:1: worker.per_node: found a value together with mlp; allowed is only with "
                  "model.kind: external (add --set worker.per_node=1 to take the default back)"},
        BadWorker{"PerNodeOfSomeNodes", "model: {kind: external}\nworker: {per_node: 4}\ncluster: {workers: 6}",
                  "j.yaml:3: cluster.workers: found 6; allowed is a multiple of 4 (worker.per_node)"},
        BadWorker{"NodeGroupWithoutScripts", "worker: {node_group: true}",
                  "j.yaml:1: worker.node_group: found a value together with mlp; allowed is only with "
                  "model.kind: external (add --set worker.node_group=false to take the default back)"},
        BadWorker{"NodeGroupOfOneScript", "model: {kind: external}\nworker: {node_group: true}",
                  "j.yaml:2: worker.node_group: found true with worker.per_node: 1; allowed is worker.per_node: 2 and "
                  "more"},
        BadWorker{"NodeGroupWithPushesInFlight",
                  "model: {kind: external}\nworker: {per_node: 4, node_group: true}\nwire: {window: 2}",
                  "j.yaml:2: worker.node_group: found true with wire.window: 2; allowed is wire.window: 1"},
        BadWorker{"NodeGroupOfUnequalShares",
                  "model: {kind: external}\nworker: {per_node: 4, node_group: true}\ntraining: {batch_size: 6}",
                  "j.yaml:3: training.batch_size: found 6; allowed is a multiple of 4 (worker.per_node), since "
                  "worker.node_group shares it out"},
        BadWorker{"Section", "worker: {groups: {devices: cpu}}",
                  "j.yaml:1: worker.groups: found a section of keys; allowed is a list of sections of keys: devices, "
                  "batch, cores, precision"},
        BadWorker{"WrongTypeOfDevices", "worker: {groups: [{devices: {cpu: 1}}, [cpu]]}",
                  "j.yaml:1: worker.groups[0].devices: found a section of keys; allowed is one or a list in [ ], each "
                  "text"},
        BadWorker{"WrongTypeOfADevice", "worker: {groups: [[[cpu]], [cpu]]}",
                  "j.yaml:1: worker.groups[0].devices[0]: found a list; allowed is text"},
        BadWorker{"UnknownKey", "worker:\n  groups:\n    - {device: cpu}\n    - cpu\n",
                  "j.yaml:3: found the unknown key 'worker.groups[0].device'; did you mean 'worker.groups[0].devices'? "
                  "Allowed "
                  "are devices, batch, cores, precision"},
        BadWorker{"NoDevices", "worker:\n  groups:\n    - [cpu]\n    - {batch: 16}\n",
                  "j.yaml:4: worker.groups[1].devices: found no device; allowed is at least one: cpu, cuda:0, cuda:1 "
                  "and so on, or auto alone"},
        BadWorker{"EmptyGroup", "worker: {groups: [[cpu], []]}",
                  "j.yaml:1: worker.groups[1].devices: found no device; allowed is at least one: cpu, cuda:0, cuda:1 "
                  "and so on, or auto alone"},
        BadWorker{"UnknownDevice", "worker: {groups: [[cpu], 3]}",
                  "j.yaml:1: worker.groups[1].devices: found '3'; allowed is cpu, cuda:0, cuda:1 and so on, or auto "
                  "alone"},
        BadWorker{"BothKinds", "worker: {groups: [[cpu, cuda:0], [cpu]]}",
                  "j.yaml:1: worker.groups[0].devices: found CPUs and GPUs together; allowed is one kind: a group "
                  "waits for its slowest device; worker.groups has several groups"},
        BadWorker{"GpuTwiceInAGroup", "worker: {groups: [[cuda:1, cuda:1], [cpu]]}",
                  "j.yaml:1: worker.groups[0].devices: found cuda:1 twice; allowed is each GPU once"},
        BadWorker{"GpuInTwoGroups", "worker:\n  groups:\n    - [cuda:0, cuda:1]\n    - [cuda:1]\n",
                  "j.yaml:4: worker.groups[1].devices: found cuda:1, which is in worker.groups[0]; allowed is each GPU "
                  "in one group"},
        BadWorker{"GpuBesideAuto", "worker: {groups: [auto, [cuda:1]]}",
                  "j.yaml:1: worker.groups[1].devices: found cuda:1 beside auto in worker.groups[0]; allowed is each "
                  "GPU in one group"},
        BadWorker{"AutoBesideGpu", "worker: {groups: [[cuda:1], auto]}",
                  "j.yaml:1: worker.groups[1].devices: found auto beside cuda:1 in worker.groups[0]; allowed is each "
                  "GPU in one group"},
        BadWorker{"DevicesToo", "worker: {devices: [cpu], groups: [[cpu], [cpu]]}",
                  "j.yaml:1: worker.devices: found a value together with worker.groups; allowed is one of both: each "
                  "group says its own (add --set worker.devices=[] or --set worker.groups=[] to take it back)"},
        BadWorker{"StagesToo", "worker: {stages: 2, groups: [[cpu], [cpu]]}",
                  "j.yaml:1: worker.stages: found a value together with worker.groups; allowed is 1: groups have the "
                  "whole model on each device"},
        BadWorker{"NotAllOnEachNode", "cluster: {workers: 3}\nworker: {groups: [[cpu], [cpu]]}",
                  "j.yaml:1: cluster.workers: found 3; allowed is a multiple of 2, the number of worker.groups, of "
                  "which each node has all"},
        BadWorker{"MoreDevicesThanSamples", "worker: {groups: [{devices: [cpu, cpu], batch: 1}, cpu]}",
                  "j.yaml:1: worker.groups[0].devices: found 2 devices; allowed is at most the group's batch (1), each "
                  "gets a part of it"},
        BadWorker{"BatchAndBalance", "training: {batch: balance}\nworker: {groups: [{devices: cpu, batch: 8}, cpu]}",
                  "j.yaml:2: worker.groups[0].batch: found 8 together with training.batch: balance; allowed is 0, or "
                  "training.batch: fixed"},
        BadWorker{"BatchOutOfRange", "worker: {groups: [{devices: cpu, batch: -1}, cpu]}",
                  "j.yaml:1: worker.groups[0].batch: found '-1'; allowed is a whole number from 0 to 1048576"}),
    [](const auto& one) { return one.param.name; });

constexpr char kCoresAllowed[] =
    "; allowed is auto, a number of cores from 1 to 4096, or a list of cores and ranges of them such as [0-3, 8], each "
    "once";

TEST(JobWorker, CoresAreANumberAListOrAuto) {
  for (const char* cores : {"auto", "4", "[0-3, 8]", "[1, 2]", "7-7", "[]"}) {
    EXPECT_TRUE(ParseJob(absl::StrCat("worker: {cores: ", cores, "}"), "j.yaml").ok()) << cores;
  }
  const auto refusal = [](const std::string& yaml) { return std::string(ParseJob(yaml, "j.yaml").status().message()); };
  EXPECT_EQ(refusal("worker: {cores: all}"), absl::StrCat("j.yaml:1: worker.cores: found 'all'", kCoresAllowed));
  EXPECT_EQ(refusal("worker: {cores: [1, 0-2]}"),
            absl::StrCat("j.yaml:1: worker.cores: found core 1 twice", kCoresAllowed));
  EXPECT_EQ(refusal("worker: {groups: [{devices: cpu, cores: 0}, cpu]}"),
            absl::StrCat("j.yaml:1: worker.groups[0].cores: found '0'", kCoresAllowed));
  EXPECT_EQ(
      refusal("worker:\n  groups:\n    - {devices: cpu, cores: 0-1}\n    - {devices: cpu, cores: [3, 1]}"),
      "j.yaml:4: worker.groups[1].cores: found core 1, which is of worker.groups[0]; allowed is cores of no other "
      "group");
  // What differs from machine to machine is no other job.
  EXPECT_EQ(Fingerprint(*ParseJob("worker: {cores: 4}", "j.yaml")), Fingerprint(*ParseJob("", "j.yaml")));
}

TEST(JobWorker, CollectorOfATraceIsAnAddress) {
  EXPECT_TRUE(ParseJob("worker: {trace_otlp: \"http://127.0.0.1:4318\"}", "j.yaml").ok());
  for (const char* address : {"127.0.0.1:4318", "https://127.0.0.1:4318", "http://", "http://127.0.0.1:4318/?a=1"}) {
    EXPECT_EQ(
        std::string(ParseJob(absl::StrCat("worker: {trace_otlp: \"", address, "\"}"), "j.yaml").status().message()),
        absl::StrCat("j.yaml:1: worker.trace_otlp: found '", address,
                     "'; allowed is the address of a collector, such as http://127.0.0.1:4318"));
  }
  // Nor does it change what is trained.
  EXPECT_EQ(Fingerprint(*ParseJob("worker: {trace_otlp: \"http://127.0.0.1:4318\"}", "j.yaml")),
            Fingerprint(*ParseJob("", "j.yaml")));
}

TEST(JobWorker, CudaGraphsNeedAGpuAndAStepThatIsAlwaysTheSame) {
  const std::string gpu = "worker: {devices: cuda:0, cuda_graphs: true}\n";
  EXPECT_TRUE(ParseJob(gpu, "j.yaml").ok());
  EXPECT_TRUE(
      ParseJob("worker: {devices: auto, cuda_graphs: true}\nmodel: {kind: vit_tiny, patch_size: 7}", "j.yaml").ok());
  EXPECT_TRUE(ParseJob("worker: {groups: [cuda:0, cpu], cuda_graphs: true}\nmodel: {kind: resnet18}", "j.yaml").ok());
  EXPECT_TRUE(ParseJob(gpu + "model: {kind: efficientnet_b0, dropout: 0, stochastic_depth: 0}", "j.yaml").ok());
  const auto refusal = [](const std::string& yaml) { return std::string(ParseJob(yaml, "j.yaml").status().message()); };
  const std::string found = "j.yaml:1: worker.cuda_graphs: found true with ";
  EXPECT_EQ(refusal("worker: {cuda_graphs: true}"),
            found + "devices that are all cpu; allowed is false, or a GPU: cuda:0, cuda:1 and so on, or auto");
  EXPECT_EQ(refusal("worker: {groups: [cpu, cpu], cuda_graphs: true}"),
            found + "devices that are all cpu; allowed is false, or a GPU: cuda:0, cuda:1 and so on, or auto");
  EXPECT_EQ(refusal(gpu + "model: {kind: torchscript, torchscript: m.pt}"),
            found + "model.kind: torchscript; allowed is false, or a model.kind that is known here");
  EXPECT_EQ(refusal(gpu + "model: {kind: vit_tiny, patch_size: 7, checkpointing: true}"),
            found + "model.checkpointing; allowed is false, or model.checkpointing: false");
  EXPECT_EQ(refusal(gpu + "model: {kind: texture_cnn_2}"), found + "dropout; allowed is false, or model.dropout: 0");
  EXPECT_EQ(refusal(gpu + "model: {kind: efficientnet_b0, dropout: 0}"),
            found + "stochastic depth; allowed is false, or model.stochastic_depth: 0");
}

TEST(JobWorker, HalfPrecisionGoesWithoutLocalTraining) {
  EXPECT_TRUE(ParseJob("worker: {precision: fp16, loss_scale: 1024, loss_scale_growth_steps: 10}", "j.yaml").ok());
  EXPECT_TRUE(ParseJob("worker: {groups: [{devices: cuda:0, precision: fp16}, cpu], loss_scale: 1024}", "j.yaml").ok());
  const auto refusal = [](const std::string& yaml) { return std::string(ParseJob(yaml, "j.yaml").status().message()); };
  EXPECT_EQ(refusal("worker: {precision: half}"),
            "j.yaml:1: worker.precision: found 'half'; allowed is one of float32, bf16, fp16");
  EXPECT_EQ(refusal("worker: {precision: bf16, loss_scale: 1024}"),
            "j.yaml:1: worker.loss_scale: found a value together with no fp16; allowed is only with worker.precision: "
            "fp16 (add --set worker.loss_scale=65536 to take the default back)");
  EXPECT_EQ(refusal("worker: {precision: fp16}\nlocal: {steps: 2}\noptimizer: {lr: 1}"),
            "j.yaml:1: worker.precision: found fp16 with local training; allowed is float32 or bf16: its own steps do "
            "not skip what overflows");
}

TEST(JobWorker, StagesAreOfAChainOfLayersOnDevicesThatAreNamed) {
  for (const char* good :
       {"worker: {precision: bf16, stages: 2, devices: [cpu, cpu]}", "worker: {stages: 2, devices: [cuda:0, cuda:3]}",
        "model: {kind: vit_small}\nworker: {stages: 3, devices: [cpu, cpu, cpu]}",
        "worker: {precision: fp16, stages: 2, devices: [cuda:0, cuda:1]}"}) {
    EXPECT_TRUE(ParseJob(good, "j.yaml").ok()) << good << ": " << ParseJob(good, "j.yaml").status();
  }
  const auto refusal = [](const std::string& text) { return std::string(ParseJob(text, "j.yaml").status().message()); };
  EXPECT_EQ(refusal("worker: {stages: 2, devices: auto}"),
            "j.yaml:1: worker.devices: found auto with worker.stages: 2; allowed is as many devices as worker.stages, "
            "by their names");
  EXPECT_EQ(refusal("model: {kind: vit_tiny, dropout: 0.1}\nworker: {stages: 2, devices: [cpu, cpu]}"),
            "j.yaml:2: worker.stages: found 2 with dropout; allowed is 1, or model.dropout: 0: stages see parts of a "
            "batch");
  EXPECT_EQ(
      refusal("model: {kind: vit_tiny, stochastic_depth: 0.1}\nworker: {stages: 2, devices: [cpu, cpu]}"),
      "j.yaml:2: worker.stages: found 2 with stochastic depth; allowed is 1, or model.stochastic_depth: 0: stages "
      "see parts of a batch");
  EXPECT_EQ(refusal("worker: {stages: 2, devices: [cuda:0, cuda:1], cuda_graphs: true}"),
            "j.yaml:1: worker.stages: found 2 with worker.cuda_graphs; allowed is 1, or worker.cuda_graphs: false: "
            "nothing is recorded of stages");
}

TEST(JobWorker, AGroupIsAListOfDevicesOrASection) {
  const auto job = ParseJob("worker: {groups: [[cuda:0, cuda:1], {devices: cpu, batch: 16}, cpu]}", "j.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  const job::Worker& worker = job->worker();
  ASSERT_EQ(worker.groups_size(), 3);
  EXPECT_THAT(worker.groups(0).devices(), ElementsAre("cuda:0", "cuda:1"));
  EXPECT_THAT(worker.groups(1).devices(), ElementsAre("cpu"));
  EXPECT_THAT(worker.groups(2).devices(), ElementsAre("cpu"));
  EXPECT_EQ(BatchSizeOf(*job, 0), 64u);
  EXPECT_EQ(BatchSizeOf(*job, 1), 16u);
  EXPECT_EQ(LargestBatchSize(*job), 64u);
}

TEST(JobWorker, ThereIsAWorkerOfEachGroupWhereNobodySaysHowMany) {
  const std::string groups = "worker: {groups: [[cpu, cpu], cpu, cpu]}\n";
  EXPECT_EQ(Resolve(*ParseJob(groups, "j.yaml")).cluster().workers(), 3u);
  EXPECT_EQ(Resolve(*ParseJob(groups + "cluster: {workers: 6}\n", "j.yaml")).cluster().workers(), 6u);
}

TEST(JobWorker, GroupsReadBackAsTheyWereWritten) {
  for (const char* yaml : {"worker: {groups: [[cpu, cpu], cpu]}", "worker: {groups: [{devices: [cuda:0], batch: 128}]}",
                           "worker: {groups: [auto, cpu]}\ncluster: {workers: 4}"}) {
    const auto job = ParseJob(yaml, "j.yaml");
    ASSERT_TRUE(job.ok()) << job.status();
    const auto back = ParseJob(ToYaml(*job), "resolved.yaml");
    ASSERT_TRUE(back.ok()) << back.status() << "\n" << ToYaml(*job);
    EXPECT_EQ(ToYaml(*back), ToYaml(*job));
    EXPECT_EQ(Fingerprint(*back), Fingerprint(*job));
    EXPECT_EQ(back->worker().devices_size(), 0);
  }
}

TEST(JobWorker, AnOverrideReplacesAllGroups) {
  const auto job = ParseJob("worker: {groups: [[cpu, cpu], cpu]}", "j.yaml", {"worker.groups=[[cuda:0], [cpu]]"});
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_EQ(job->worker().groups_size(), 2);
  EXPECT_THAT(job->worker().groups(0).devices(), ElementsAre("cuda:0"));
}

TEST(JobWorker, EpochWithFewerSamplesThanAPushOfEachWorkerIsDoubted) {
  job::Job job;
  job.mutable_training()->set_batch_size(64);
  job.mutable_cluster()->set_workers(8);
  EXPECT_EQ(FewSamplesDoubt(job, 512), "");
  EXPECT_THAT(FewSamplesDoubt(job, 511),
              HasSubstr("an epoch has 511 samples, and one push of each worker takes 8 x 64"));
  job.mutable_local()->set_epochs(2);
  EXPECT_EQ(FewSamplesDoubt(job, 100), "") << "each worker takes its part of an epoch";
}

}  // namespace
}  // namespace slackline::job_worker_test
