#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "cli/run/script.h"
#include "cli/slurm/allocation.h"
#include "cli/slurm/meeting.h"
#include "cli/slurm/placement.h"
#include "cli/slurm/slurm_programs.h"
#include "cli/slurm/submit.h"

namespace slackline::cli::slurm::slurm_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Environment From(const std::map<std::string, std::string>& variables) {
  return [variables](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
}

TEST(Allocation, IsReadFromWhatSlurmSets) {
  const auto plain =
      ReadAllocation(From({{"SLURM_JOB_ID", "17"}, {"SLURM_JOB_NUM_NODES", "4"}, {"SLURM_RESTART_COUNT", "2"}}));
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->job, 17u);
  EXPECT_EQ(plain->name, "17");
  EXPECT_EQ(plain->nodes, 4u);
  EXPECT_EQ(plain->restarts, 2u);
  EXPECT_EQ(plain->components, 1u);
  const auto array = ReadAllocation(From({{"SLURM_JOB_ID", "18"},
                                          {"SLURM_JOB_NUM_NODES", "1"},
                                          {"SLURM_ARRAY_JOB_ID", "17"},
                                          {"SLURM_ARRAY_TASK_ID", "3"}}));
  EXPECT_EQ(array->name, "17_3");
  EXPECT_EQ(array->task, "3");
  EXPECT_EQ(plain->task, "");
}

TEST(Allocation, OfSeveralComponentsCountsAllNodes) {
  const auto both = ReadAllocation(From({{"SLURM_JOB_ID", "4"},
                                         {"SLURM_HET_SIZE", "2"},
                                         {"SLURM_JOB_NUM_NODES", "1"},
                                         {"SLURM_JOB_NUM_NODES_HET_GROUP_0", "1"},
                                         {"SLURM_JOB_NUM_NODES_HET_GROUP_1", "2"}}));
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->nodes, 3u);
  EXPECT_EQ(both->components, 2u);
}

TEST(Allocation, OutsideOfOneSaysWhatToDo) {
  const auto outside = ReadAllocation(From({}));
  EXPECT_TRUE(absl::IsFailedPrecondition(outside.status()));
  EXPECT_THAT(outside.status().message(), HasSubstr("slackline slurm submit"));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadAllocation(From({{"SLURM_JOB_ID", "four"}})).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadAllocation(From({{"SLURM_JOB_ID", "4"}})).status()));
}

TEST(TaskPlace, KnowsItsSwitchAndItsComponent) {
  std::map<std::string, std::string> variables = {{"SLURMD_NODENAME", "n3"},
                                                  {"SLURM_TOPOLOGY_ADDR", "spine.leaf2.n3"},
                                                  {"SLURM_TOPOLOGY_ADDR_PATTERN", "switch.switch.node"},
                                                  {"SLURM_CPUS_ON_NODE", "16"},
                                                  {"SLURM_GPUS_ON_NODE", "4"},
                                                  {"SLURM_HET_SIZE", "2"},
                                                  {"SLURM_NTASKS_HET_GROUP_0", "1"},
                                                  {"SLURM_NTASKS_HET_GROUP_1", "2"},
                                                  {"SLURM_PROCID", "1"}};
  auto place = ReadTaskPlace(From(variables));
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->topology, "spine.leaf2.n3");
  EXPECT_EQ(place->cpus, 16u);
  EXPECT_EQ(place->gpus, 4u);
  EXPECT_EQ(place->component, 1u);
  variables["SLURM_PROCID"] = "0";
  EXPECT_EQ(ReadTaskPlace(From(variables))->component, 0u);
  // A cluster without a plugin for its topology tells the node alone.
  variables["SLURM_TOPOLOGY_ADDR_PATTERN"] = "node";
  variables["SLURM_TOPOLOGY_ADDR"] = "n3";
  EXPECT_EQ(ReadTaskPlace(From(variables))->topology, "");
  EXPECT_FALSE(ReadTaskPlace(From({})).ok());
}

TEST(TimeLeft, IsReadAsSqueueWritesIt) {
  EXPECT_EQ(ParseTimeLeft("1-02:03:04"), absl::Hours(26) + absl::Minutes(3) + absl::Seconds(4));
  EXPECT_EQ(ParseTimeLeft("02:03:04"), absl::Hours(2) + absl::Minutes(3) + absl::Seconds(4));
  EXPECT_EQ(ParseTimeLeft("3:04"), absl::Minutes(3) + absl::Seconds(4));
  EXPECT_EQ(ParseTimeLeft("0:00"), absl::ZeroDuration());
  EXPECT_EQ(ParseTimeLeft("5:00\n3:00\nUNLIMITED"), absl::Minutes(3));
  for (const char* text : {"UNLIMITED", "INVALID", "NOT_SET", "", "1-", ":"})
    EXPECT_EQ(ParseTimeLeft(text), std::nullopt) << text;
}

TEST(Restarts, AreReadAsScontrolWritesThem) {
  EXPECT_EQ(ParseRestarts("JobId=3 Requeue=1 Restarts=2 BatchFlag=1"), 2u);
  EXPECT_EQ(ParseRestarts("Restarts=0"), 0u);
  EXPECT_EQ(ParseRestarts("JobId=3"), std::nullopt);
}

class MeetingTest : public ::testing::Test {
 protected:
  MeetingTest() : folder_(std::filesystem::temp_directory_path() / ("slackline-meeting-" + std::to_string(getpid()))) {}
  ~MeetingTest() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path folder_;
};

TEST_F(MeetingTest, TellsWhatWasSaid) {
  const Meeting meeting(folder_, "17-1");
  ASSERT_TRUE(meeting.Open().ok());
  EXPECT_EQ(meeting.run_folder(), folder_);
  EXPECT_TRUE(meeting.Arrived().empty());
  EXPECT_EQ(meeting.ReadPlan(), std::nullopt);
  NodeFacts facts;
  facts.node = {"n1", "spine.leaf1.n1", 8, 2, 1};
  facts.address = "10.1.2.3";
  facts.machine = "abc";
  ASSERT_TRUE(meeting.Arrive(facts).ok());
  const NodeFacts read = meeting.Arrived().at("n1");
  EXPECT_EQ(read.node.topology, "spine.leaf1.n1");
  EXPECT_EQ(read.node.cpus, 8u);
  EXPECT_EQ(read.node.gpus, 2u);
  EXPECT_EQ(read.node.component, 1u);
  EXPECT_EQ(read.address, "10.1.2.3");
  EXPECT_EQ(read.machine, "abc");

  Plan plan;
  plan.number = 3;
  plan.roles = {{"n1", true, {"ps-1"}, {"worker-n1"}}, {"n2", false, {}, {}}};
  ASSERT_TRUE(meeting.WritePlan(plan).ok());
  EXPECT_EQ(meeting.ReadPlan()->number, 3u);
  EXPECT_EQ(meeting.ReadPlan()->roles, plan.roles);
  EXPECT_EQ(meeting.ReadPlan()->end_within, std::nullopt);
  EXPECT_TRUE(meeting.ReadPlan()->script.empty());
  plan.script = {"/usr/bin/env", "python3", "/my train.py", "--lr=0.1"};
  plan.end_within = absl::Seconds(2.5);
  ASSERT_TRUE(meeting.WritePlan(plan).ok());
  EXPECT_EQ(meeting.ReadPlan()->end_within, absl::Seconds(2.5));
  EXPECT_EQ(meeting.ReadPlan()->script, plan.script);

  EXPECT_EQ(meeting.LastBeat(), 0u);
  ASSERT_TRUE(meeting.Beat(7).ok());
  EXPECT_EQ(meeting.LastBeat(), 7u);

  ASSERT_TRUE(meeting.Leave("n2", "SLURM tells it to stop").ok());
  ASSERT_TRUE(meeting.Trouble("n1", "two\nlines").ok());
  const std::vector<std::string> both = {"n1", "n2"};
  EXPECT_EQ(meeting.Leaving(both), (std::map<std::string, std::string>{{"n2", "SLURM tells it to stop"}}));
  EXPECT_EQ(meeting.InTrouble(both), (std::map<std::string, std::string>{{"n1", "two\nlines"}}));
  // Another attempt knows nothing of it.
  EXPECT_TRUE(Meeting(folder_, "17-2").Leaving(both).empty());
  EXPECT_TRUE(absl::IsAlreadyExists(meeting.Open()));
}

TEST_F(MeetingTest, APulseIsFeltFromItsFirstMomentOn) {
  const Meeting meeting(folder_, "17-0");
  ASSERT_TRUE(meeting.Open().ok());
  EXPECT_EQ(meeting.LastBeat(), 0u);
  Pulse pulse(meeting);
  pulse.StillHere();
  EXPECT_EQ(meeting.LastBeat(), 1u);
}

TEST_F(MeetingTest, WhatIsHalfWrittenIsNotThereYet) {
  const Meeting meeting(folder_, "17-0");
  ASSERT_TRUE(meeting.Open().ok());
  for (const char* text : {"", "{", "[]", "{\"number\": \"x\"}", "{\"nodes\": 3}", "null"}) {
    std::ofstream(meeting.folder() / "plan.json") << text;
    std::ofstream(meeting.folder() / "n1.here") << text;
    const std::optional<Plan> plan = meeting.ReadPlan();
    EXPECT_TRUE(!plan || plan->number == 0) << text;
    EXPECT_FALSE(meeting.Arrived().contains("n1")) << text;
  }
}

TEST(Placement, NodesThatTheClusterDoesNotHaveAreNamed) {
  const auto known = ParseNodes("n1 4 (null)\nn2 4 (null)\n");
  EXPECT_THAT(UnknownNodes("n1\nn2\n", known), ::testing::IsEmpty());
  EXPECT_THAT(UnknownNodes("n1\nn9\nx\n", known), ::testing::ElementsAre("n9", "x"));
}

TEST(Placement, ReadsWhatSlurmWrites) {
  const std::vector<Node> nodes = ParseNodes("n1 4 (null)\nn1 4 (null)\nn2 128 gpu:a100:4(S:0-1),tmp:5\nn3 x gpu\n\n");
  ASSERT_EQ(nodes.size(), 3u);
  EXPECT_EQ(nodes[0].cpus, 4u);
  EXPECT_EQ(nodes[0].gpus, 0u);
  EXPECT_EQ(nodes[1].name, "n2");
  EXPECT_EQ(nodes[1].gpus, 4u);
  EXPECT_EQ(nodes[2].cpus, 1u);
  EXPECT_EQ(nodes[2].gpus, 1u);
  EXPECT_EQ(ParseLeafSwitches("SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2] Switches=\n"
                              "SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf[1-2]\n\n"),
            (std::map<std::string, std::string>{{"leaf1", "n[1-2]"}}));
}

TEST(BatchScript, TasksOfAnArrayHaveSettingsWithTheirNumbers) {
  const std::vector<std::string> settings = {"seed=%a", "data.path=part-%a/of-%a", "name=100%"};
  EXPECT_THAT(SettingsOfTask(settings, "12"), ElementsAre("seed=12", "data.path=part-12/of-12", "name=100%"));
  EXPECT_EQ(SettingsOfTask(settings, ""), settings);
  const std::vector<std::pair<std::vector<std::string>, std::string>> firsts = {{{"--nodes=2", "--array=7,9"}, "7"},
                                                                                {{"--array", "10-20%2"}, "10"},
                                                                                {{"-a3"}, "3"},
                                                                                {{"-a", "4"}, "4"},
                                                                                {{"--nodes=2"}, ""},
                                                                                {{"--nodes=2", ":", "-a3"}, ""}};
  for (const auto& [sbatch, first] : firsts) EXPECT_EQ(FirstTask(sbatch), first);
  SubmitOptions options;
  options.overrides = {"seed=%a"};
  options.sbatch = {"--array=1-5"};
  EXPECT_THAT(BatchScript(options, "job", "/opt/slackline", "/runs/a"), HasSubstr("--set 'seed=%a'"));
}

TEST(BatchScript, SaysAllThatSbatchMustKnow) {
  SubmitOptions options;
  options.overrides = {"name=it's"};
  options.stop_before_s = 90.5;
  options.interface = "ib0";
  options.srun = {"--container-image=/images/py torch.sqsh", "--label"};
  const std::string script = BatchScript(options, "job", "/opt/slackline", "/runs/100%");
  EXPECT_THAT(script, HasSubstr("#SBATCH --signal=B:USR1@91\n"));
  EXPECT_THAT(script, HasSubstr("#SBATCH --requeue\n"));
  EXPECT_THAT(script, HasSubstr("#SBATCH --output=\"/runs/100%%/submit/slurm-%j.out\"\n"));
  EXPECT_THAT(script,
              HasSubstr("exec '/opt/slackline' slurm run '/runs/100%/submit/job.yaml' --run-folder '/runs/100%' --set "
                        "'name=it'\\''s' --interface 'ib0' --stop-before 90.5 "
                        "--srun-option='--container-image=/images/py torch.sqsh' --srun-option='--label'\n"));
  options.requeue = false;
  options.resume = true;
  options.sbatch = {"--array=1-3"};
  const std::string array = BatchScript(options, "job", "/opt/slackline", "/runs/a");
  EXPECT_THAT(array, HasSubstr("--run-folder '/runs/a/'\"$SLURM_ARRAY_TASK_ID\""));
  EXPECT_THAT(array, HasSubstr("slurm-%A_%a.out"));
  EXPECT_THAT(array, HasSubstr("run --resume --run-folder"));
  EXPECT_THAT(array, HasSubstr("--no-requeue\n"));
  EXPECT_THAT(array, Not(HasSubstr("#SBATCH --requeue\n")));
}

TEST(BatchScript, HasTheScriptThatIsTheWorkers) {
  SubmitOptions options;
  options.script = {.script = "/my train.py", .arguments = {"--lr", "it's"}, .python = "python3.11"};
  EXPECT_THAT(BatchScript(options, "job", "/opt/slackline", "/runs/a"),
              HasSubstr("--stop-before 120 --script '/my train.py' --python 'python3.11' --script-argument='--lr' "
                        "--script-argument='it'\\''s'\n"));
  // The batch script runs elsewhere.
  options.script = {.script = "train.py", .arguments = {}, .python = "env/bin/python"};
  const std::string here = std::filesystem::current_path();
  EXPECT_THAT(BatchScript(options, "job", "/opt/slackline", "/runs/a"),
              HasSubstr("--script '" + here + "/train.py' --python '" + here + "/env/bin/python'\n"));
}

TEST(Script, IsKeptWithTheRun) {
  const std::filesystem::path run = std::filesystem::path(::testing::TempDir()) / "kept-script";
  std::filesystem::remove_all(run);
  EXPECT_TRUE(KeptScript(run).empty());
  ASSERT_TRUE(KeepScript({}, run).ok());
  EXPECT_FALSE(std::filesystem::exists(run));
  const std::vector<std::string> script = {"/usr/bin/env", "python3", "/my train.py"};
  ASSERT_TRUE(KeepScript(script, run).ok());
  EXPECT_EQ(KeptScript(run), script);
  EXPECT_THAT(CommandToGoOn({}, run).status().message(),
              HasSubstr("found no file /my train.py, the script of this run"));
  EXPECT_EQ(StartTextOf("slackline", script, "job.yaml", {}).Whole(), "slackline launch '/my train.py' job.yaml");
  EXPECT_EQ(StartTextOf("slackline", {"/env/python", "/a.py", "--fast", "1 2"}, "job.yaml", {}).Whole(),
            "slackline launch /a.py job.yaml --python /env/python -- '--fast' '1 2'");
  const StartText start = StartTextOf("bin/slackline", {"/env/python", "/a.py", "--fast"}, "job.yaml",
                                      {"training.epochs=2", "model.kind=external"});
  EXPECT_EQ(start.head, "bin/slackline launch /a.py job.yaml --python /env/python --set training.epochs=2");
  EXPECT_EQ(start.tail, " -- '--fast'");
  EXPECT_EQ(StartTextOf("slackline", {}, "job.yaml", {"model.kind=external"}).head,
            "slackline train job.yaml --set model.kind=external");
  EXPECT_THAT(CommandOf({.script = "", .arguments = {}, .python = "python3.12"}).status().message(),
              HasSubstr("allowed is --script SCRIPT with them"));
  std::ofstream(run / "script.json") << "{";
  EXPECT_TRUE(KeptScript(run).empty());
}

TEST(Script, FindsInItsEnvironmentWhatTheWorkersProgramHasAsFlags) {
  EXPECT_TRUE(EnvironmentOf({}).empty());
  EXPECT_EQ(EnvironmentOf({"--set", "network.listen=10.0.0.1", "--supervised", "--topology", "spine.leaf1.n1", "--set",
                           "worker.threads=3"}),
            (std::vector<std::string>{"SLACKLINE_SUPERVISED=1", "SLACKLINE_TOPOLOGY=spine.leaf1.n1",
                                      "SLACKLINE_SET=network.listen=10.0.0.1\nworker.threads=3"}));
}

}  // namespace
}  // namespace slackline::cli::slurm::slurm_test
