#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/doctor/checks.h"
#include "cli/doctor/control_groups.h"
#include "cli/doctor/nodes.h"
#include "cli/doctor/peer.h"
#include "cli/doctor/probe_disk.h"
#include "cli/doctor/probe_ports.h"
#include "cli/doctor/probe_system.h"
#include "cli/doctor/report.h"
#include "common/job/job_file.h"

namespace slackline::cli::doctor::doctor_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

job::Job JobOf(const std::string& yaml) {
  const absl::StatusOr<job::Job> job = ParseJob(yaml, "job.yaml");
  EXPECT_TRUE(job.ok()) << job.status();
  return Resolve(job.ok() ? *job : job::Job());
}

auto Is(Level level, const std::string& check, const std::string& found) {
  return AllOf(Field("level", &Finding::level, level), Field("check", &Finding::check, check),
               Field("found", &Finding::found, HasSubstr(found)));
}
auto IsFine() { return Field("level", &Finding::level, ::testing::AnyOf(Level::kOk, Level::kSkipped)); }
// Who is warned is told what to do.
auto HasAdvice() {
  return AllOf(Field(&Finding::needed, ::testing::Ne("")), Field(&Finding::advice, ::testing::Ne("")));
}

SystemFacts GoodMachine() {
  SystemFacts facts;
  facts.limits.descriptors = 65536;
  facts.limits.threads = 100000;
  facts.memory.machine_bytes = facts.memory.available_bytes = uint64_t{64} << 30;
  facts.memory.huge_pages = "madvise";
  facts.processor.threads = 16;
  return facts;
}

class Checks : public ::testing::Test {
 protected:
  Findings Limits() const { return CheckLimits(system_, job_, WholeLoad(job_)); }
  Findings Memory() const { return CheckMemory(system_, job_, load_); }
  Findings Processors() const { return CheckProcessors(system_.processor, job_, load_); }

  SystemFacts system_ = GoodMachine();
  job::Job job_ = JobOf("{}");
  Load load_ = WholeLoad(job_);
};

TEST_F(Checks, AGoodMachineIsFine) {
  EXPECT_THAT(Limits(), Each(IsFine()));
  EXPECT_THAT(Memory(), Each(IsFine()));
  EXPECT_THAT(Processors(), Each(IsFine()));
  EXPECT_THAT(CheckGpu(system_.gpu, system_.memory, job_), Each(IsFine()));
}

TEST_F(Checks, FewDescriptorsCostSharedMemoryAndTooFewTheRun) {
  job_ = JobOf("cluster: {workers: 100, servers: 2}");
  system_.limits.descriptors = 400;
  EXPECT_THAT(Limits(), Contains(AllOf(Is(Level::kWarning, "descriptors", "400 open files"), HasAdvice())));
  system_.limits.descriptors = 200;
  EXPECT_THAT(Limits(), Contains(Is(Level::kProblem, "descriptors", "200 open files")));
  system_.limits.descriptors.reset();
  EXPECT_THAT(Limits(), Each(IsFine()));
}

TEST_F(Checks, ThreadsThatAreThereCountAgainstTheLimit) {
  system_.limits.threads = 1000;
  system_.user_threads = 990;
  EXPECT_THAT(Limits(), Contains(AllOf(Is(Level::kProblem, "threads", "990 are there"), HasAdvice())));
  system_.root = true;
  EXPECT_THAT(Limits(), Each(IsFine()));
}

TEST_F(Checks, LockedMemoryMattersWithInfinibandOnly) {
  system_.limits.locked_bytes = 64 << 10;
  EXPECT_THAT(Limits(), Each(IsFine()));
  system_.infiniband = true;
  EXPECT_THAT(Limits(), Contains(AllOf(Is(Level::kWarning, "memory lock", "InfiniBand"), HasAdvice())));
}

TEST_F(Checks, AFewAddressesAreTooFewForSharedMemory) {
  system_.limits.address_bytes = uint64_t{8} << 30;
  EXPECT_THAT(Limits(), Contains(AllOf(Is(Level::kWarning, "addresses", "8.0 GiB"), HasAdvice())));
  job_ = JobOf("wire: {same_host: tcp}");
  EXPECT_THAT(Limits(), Each(IsFine()));
}

TEST_F(Checks, MemoryOfTheControlGroupCounts) {
  system_.memory.group_bytes = uint64_t{4} << 30;
  EXPECT_THAT(Memory(), Each(IsFine()));
  system_.memory.group_used_bytes = uint64_t{4} << 30;
  EXPECT_THAT(Memory(),
              Contains(AllOf(Is(Level::kProblem, "memory", "the control group allows 4.0 GiB"), HasAdvice())));
}

TEST_F(Checks, ALargeModelNeedsMemoryThatASmallOneDoesNot) {
  system_.memory.available_bytes = uint64_t{8} << 30;
  load_.parameters = 1000000;
  EXPECT_THAT(Memory(), Each(IsFine()));
  load_.parameters = 1000000000;
  EXPECT_THAT(Memory(), Contains(Is(Level::kProblem, "memory", "8.0 GiB of 64.0 GiB are available")));
}

TEST_F(Checks, AnOptimizerWithTwoArraysTakesMoreThanOneWithout) {
  const uint64_t sgd = ServerBytes(job_, 1 << 20), adam = ServerBytes(JobOf("optimizer: {kind: adam}"), 1 << 20);
  EXPECT_EQ(adam - sgd, 2 * 4 * ((1 << 20) / 2 + 1));
  EXPECT_EQ(StateBytes(JobOf("optimizer: {momentum: 0.9}"), 100), 800);
}

TEST_F(Checks, MemoryThatCannotBeSharedIsAWarning) {
  system_.memory.sharing = absl::UnavailableError("memfd_create: Operation not permitted");
  EXPECT_THAT(Memory(), Contains(AllOf(Is(Level::kWarning, "shared memory", "memfd_create"), HasAdvice())));
  job_ = JobOf("wire: {same_host: unix}");
  EXPECT_THAT(Memory(), Each(IsFine()));
}

TEST_F(Checks, NoHugePagesAreAWarning) {
  system_.memory.huge_pages = "never";
  EXPECT_THAT(Memory(), Contains(AllOf(Is(Level::kWarning, "huge pages", "never"), HasAdvice())));
}

TEST_F(Checks, MoreThreadsThanTheMachineHasAreAWarning) {
  system_.processor.threads = 4;
  job_ = JobOf("cluster: {workers: 2}\nworker: {threads: 4}");
  EXPECT_THAT(Processors(), Contains(AllOf(Is(Level::kWarning, "processors", "4 hardware threads"), HasAdvice())));
  job_ = JobOf("cluster: {workers: 2}\nworker: {threads: 2}");
  EXPECT_THAT(Processors(), Each(IsFine()));
}

TEST_F(Checks, ThreadsOfAControlGroupAreSaidSinceWorkersDoNotSeeThem) {
  system_.processor.group_threads = 4;
  EXPECT_THAT(Processors(), Contains(AllOf(Is(Level::kWarning, "processors", "allows 4.0"),
                                           Field(&Finding::advice, HasSubstr("worker.threads=2")))));
  job_ = JobOf("worker: {threads: 2}");
  EXPECT_THAT(Processors(), Each(IsFine()));
}

TEST_F(Checks, AGovernorThatSavesPowerIsAWarning) {
  system_.processor.governor = "powersave";
  EXPECT_THAT(Processors(), Contains(AllOf(Is(Level::kWarning, "governor", "powersave"), HasAdvice())));
}

TEST_F(Checks, AClockThatNobodySetsIsAWarning) {
  EXPECT_THAT(CheckClock({}), Each(Is(Level::kSkipped, "clock", "does not say")));
  EXPECT_THAT(CheckClock({.known = true, .synchronised = true, .error_max = absl::Milliseconds(2)}),
              Each(Is(Level::kOk, "clock", "2.0 ms")));
  EXPECT_THAT(CheckClock({.known = true, .synchronised = false, .error_max = {}}),
              Each(AllOf(Is(Level::kWarning, "clock", "not synchronised"), HasAdvice())));
}

TEST_F(Checks, NoGpuIsAProblemForAJobThatWantsOneOnly) {
  EXPECT_THAT(CheckGpu({}, system_.memory, job_), Each(Is(Level::kSkipped, "gpu", "none here")));
  job::Job wants = job_;
  wants.mutable_worker()->add_devices("cuda:0");
  EXPECT_THAT(CheckGpu({}, system_.memory, wants), Each(AllOf(Is(Level::kProblem, "gpu", "no driver"), HasAdvice())));
  wants.mutable_worker()->set_devices(0, "auto");
  EXPECT_THAT(CheckGpu({}, system_.memory, wants), Each(Is(Level::kSkipped, "gpu", "none here")));
  const GpuFacts two = {.names = {"H100", "H100"}, .driver = "550.1", .nccl = ""};
  EXPECT_THAT(CheckGpu(two, system_.memory, wants),
              AllOf(Contains(Is(Level::kOk, "gpu", "driver 550.1: H100, H100")),
                    Contains(AllOf(Is(Level::kWarning, "nccl", "no libnccl"), HasAdvice())),
                    Contains(AllOf(Is(Level::kWarning, "/dev/shm", "0 bytes"), HasAdvice()))));
  EXPECT_THAT(CheckGpu(two, system_.memory, job_), Each(IsFine()));
}

TEST_F(Checks, AContainerIsNamed) {
  EXPECT_THAT(CheckContainer(system_, job_), IsEmpty());
  system_.container = "docker";
  EXPECT_THAT(CheckContainer(system_, job_), Each(Is(Level::kOk, "container", "docker")));
}

DiskFacts GoodDisk() {
  DiskFacts disk;
  disk.purpose = "run folder, snapshots";
  disk.path = disk.tried = "/scratch";
  disk.file_system = "ext4";
  disk.free_bytes = uint64_t{1} << 40;
  disk.write_mb_per_s = 500;
  disk.sync_median = absl::Milliseconds(2);
  disk.sync_max = absl::Milliseconds(5);
  return disk;
}

TEST_F(Checks, DisksThatAreFullSlowOrForgetfulAreSaid) {
  EXPECT_THAT(CheckDisk(GoodDisk(), job_, load_), Each(IsFine()));
  DiskFacts disk = GoodDisk();
  disk.free_bytes = 1 << 20;
  EXPECT_THAT(CheckDisk(disk, job_, load_), Contains(AllOf(Is(Level::kProblem, "disk", "1 MiB free"), HasAdvice())));
  disk = GoodDisk();
  disk.sync_median = absl::Milliseconds(151);
  EXPECT_THAT(CheckDisk(disk, job_, load_),
              Contains(AllOf(Is(Level::kWarning, "disk speed", "151.0 ms"), HasAdvice())));
  disk.sync_median = absl::Milliseconds(149);
  EXPECT_THAT(CheckDisk(disk, job_, load_), Each(IsFine()));
  disk.file_system = "tmpfs";
  EXPECT_THAT(CheckDisk(disk, job_, load_), Contains(AllOf(Is(Level::kWarning, "disk", "in memory"), HasAdvice())));
  disk = GoodDisk();
  disk.locks = absl::UnavailableError("flock: No locks available");
  EXPECT_THAT(CheckDisk(disk, job_, load_),
              Contains(AllOf(Is(Level::kWarning, "disk", "locks do not work"), HasAdvice())));
  EXPECT_THAT(CheckDisk(disk, job_, load_), ::testing::Not(Contains(Is(Level::kProblem, "disk", "locks"))));
  disk.record_locks = absl::UnavailableError("fcntl: No locks available");
  EXPECT_THAT(CheckDisk(disk, job_, load_),
              Contains(AllOf(Is(Level::kProblem, "disk", "fcntl: No locks available"), HasAdvice())));
  EXPECT_THAT(CheckDisk(disk, JobOf("durability: {mode: none}"), load_),
              ::testing::Not(Contains(Is(Level::kProblem, "disk", "locks"))));
  disk.renames = absl::UnavailableError("rename: no");
  EXPECT_THAT(CheckDisk(disk, job_, load_),
              Contains(AllOf(Is(Level::kProblem, "disk", "cannot be replaced"), HasAdvice())));
  disk.writable = absl::UnavailableError("cannot make a folder in /scratch: Permission denied");
  EXPECT_THAT(CheckDisk(disk, job_, load_),
              ::testing::ElementsAre(AllOf(Is(Level::kProblem, "disk", "Permission denied"), HasAdvice())));
}

TEST_F(Checks, OfADiskThatIsFullItIsSaidHowMuchIsThereAndHowMuchIsNeeded) {
  DiskFacts disk = GoodDisk();
  disk.free_bytes = 12288;
  disk.writable = absl::ResourceExhaustedError("write: No space left on device");
  const Findings findings = CheckDisk(disk, job_, load_);
  ASSERT_THAT(findings,
              ::testing::ElementsAre(
                  AllOf(Is(Level::kProblem, "disk", "/scratch (ext4) is full, 12288 bytes were free: write: No space"),
                        HasAdvice())));
  EXPECT_THAT(findings[0].needed, HasSubstr("MiB for what the job keeps in /scratch"));
  EXPECT_THAT(findings[0].advice, HasSubstr("make room in /scratch"));
}

TEST_F(Checks, ASnapshotMustBeWrittenBeforeTheNextOne) {
  DiskFacts disk = GoodDisk();
  disk.write_mb_per_s = 10;
  load_.parameters = 50000000;  // 200 MB in 30 s
  EXPECT_THAT(CheckDisk(disk, job_, load_), Each(IsFine()));
  load_.parameters = 100000000;
  EXPECT_THAT(CheckDisk(disk, job_, load_), Contains(AllOf(Is(Level::kWarning, "disk speed", "10 MB/s"), HasAdvice())));
  job_ = JobOf("durability: {mode: none}");
  EXPECT_THAT(CheckDisk(disk, job_, load_), Each(IsFine()));
}

TEST_F(Checks, PortsThatCannotBeHadAreProblems) {
  PortFacts ports;
  ports.address = "10.0.0.1";
  EXPECT_THAT(CheckPorts(ports, job_, load_), Each(IsFine()));
  ports.metrics_port = absl::UnavailableError("10.0.0.1:9100: Address already in use");
  EXPECT_THAT(CheckPorts(ports, job_, load_),
              Contains(AllOf(Is(Level::kProblem, "metrics port", "9100"), HasAdvice())));
  job_ = JobOf("network: {ports: 40000-40003}");
  ports.range_size = ports.range_free = 4;
  EXPECT_THAT(CheckPorts(ports, job_, load_),
              Contains(AllOf(Is(Level::kProblem, "port range", "4 of the 4"), HasAdvice())));
  ports.range_free = 10;
  EXPECT_THAT(CheckPorts(ports, job_, load_), Contains(Is(Level::kOk, "port range", "40000-40003")));
  ports.address = "0.0.0.0";
  EXPECT_THAT(CheckPorts(ports, job_, load_), Contains(AllOf(Is(Level::kWarning, "address", "0.0.0.0"), HasAdvice())));
  ports.listening = absl::NotFoundError("found no network interface ib0");
  EXPECT_THAT(CheckPorts(ports, job_, load_),
              ::testing::ElementsAre(AllOf(Is(Level::kProblem, "ports", "ib0"), HasAdvice())));
}

TEST_F(Checks, SlowLinksAndClocksThatDisagreeAreSaid) {
  LinkFacts link = {.round_trip = absl::Microseconds(80),
                    .to_mb_per_s = 1000,
                    .from_mb_per_s = 900,
                    .clock_ahead = absl::Microseconds(30)};
  EXPECT_THAT(CheckLink(link, "n2", job_, load_), Each(Is(Level::kOk, "link with n2", "80 us there and back")));
  load_.parameters = 225000000;
  EXPECT_THAT(CheckLink(link, "n2", job_, load_), Each(Is(Level::kOk, "link with n2", "(900.0 MB) takes 1.0 s")));
  EXPECT_THAT(CheckClocks(link, "n2"), Is(Level::kOk, "clock beside n2", "30 us apart"));
  link.clock_ahead = absl::Seconds(-3);
  EXPECT_THAT(CheckClocks(link, "n2"), AllOf(Is(Level::kWarning, "clock beside n2", "3.0 s behind"), HasAdvice()));
  link.clock_ahead = absl::Minutes(2);
  EXPECT_THAT(CheckClocks(link, "n2"), Is(Level::kProblem, "clock beside n2", "120.0 s ahead"));
  link = {.round_trip = absl::Milliseconds(200), .to_mb_per_s = 1, .from_mb_per_s = 1, .clock_ahead = {}};
  EXPECT_THAT(CheckLink(link, "n2", job_, load_),
              Contains(AllOf(Is(Level::kProblem, "link with n2", "200.0 ms"), HasAdvice())));
}

TEST_F(Checks, WhatAJobNeedsOnEachMachineIsNamedWhereItIsMissing) {
  EXPECT_THAT(CheckJob({}, job_), Each(IsFine()));
  JobTrials facts;
  facts.programs = absl::NotFoundError("found no slackline-ps");
  facts.data = absl::NotFoundError("found no folder /data");
  facts.devices = absl::FailedPreconditionError("worker.devices: cuda:0 was asked for; here is none");
  EXPECT_THAT(CheckJob(facts, job_),
              AllOf(Contains(AllOf(Is(Level::kProblem, "devices", "cuda:0"), HasAdvice())),
                    Contains(AllOf(Is(Level::kProblem, "programs", "slackline-ps"), HasAdvice())),
                    Contains(AllOf(Is(Level::kProblem, "data", "/data"), HasAdvice()))));
}

TEST_F(Checks, CredentialsThatAreMissingOrEndSoonAreSaid) {
  const job::Job open = JobOf("network: {listen: 10.0.0.1}\nsecurity: {insecure: true}");
  EXPECT_THAT(CheckJob({}, open), Contains(AllOf(Is(Level::kWarning, "credentials", "none"), HasAdvice())));
  job::Job tls = job_;
  tls.mutable_security()->set_mode(job::Security::TLS);
  EXPECT_THAT(CheckJob({}, tls), Contains(Is(Level::kOk, "credentials", "valid")));
  JobTrials facts;
  facts.soon = absl::Hours(7 * 24);
  facts.credentials_soon = absl::InvalidArgumentError("worker.crt: expired");
  EXPECT_THAT(CheckJob(facts, tls),
              Contains(AllOf(Is(Level::kWarning, "credentials", "in 7 days: worker.crt"), HasAdvice())));
  facts.credentials = facts.credentials_soon;
  EXPECT_THAT(CheckJob(facts, tls),
              Contains(AllOf(Is(Level::kProblem, "credentials", "worker.crt: expired"), HasAdvice())));
}

constexpr char kGoodSlurm[] =
    "Configuration data as of 2025-01-31T12:00:00\nJobRequeue              = 1\nKillWait                = 60 sec\n"
    "PreemptMode             = REQUEUE\nPreemptType             = preempt/partition_prio\n"
    "ProctrackType           = proctrack/cgroup\nSlurmdTimeout           = 300 sec\n";

Findings SlurmWith(const std::string& name, const std::string& value) {
  return CheckSlurmConfig(absl::StrCat(kGoodSlurm, name, " = ", value, "\n"), JobOf("{}"));
}

TEST(SlurmConfig, SettingsThatCostARunAreSaid) {
  EXPECT_THAT(CheckSlurmConfig(kGoodSlurm, JobOf("{}")), Each(IsFine()));
  EXPECT_THAT(CheckSlurmConfig("", JobOf("{}")), Each(Is(Level::kSkipped, "slurm", "says nothing")));
  EXPECT_THAT(SlurmWith("JobRequeue", "0"),
              Contains(AllOf(Is(Level::kWarning, "slurm requeue", "JobRequeue=0"), HasAdvice())));
  EXPECT_THAT(SlurmWith("KillWait", "5 sec"),
              Contains(AllOf(Is(Level::kWarning, "slurm KillWait", "5 s"), HasAdvice())));
  EXPECT_THAT(SlurmWith("PreemptMode", "CANCEL"),
              Contains(AllOf(Is(Level::kWarning, "slurm preemption", "CANCEL"), HasAdvice())));
  EXPECT_THAT(SlurmWith("PreemptMode", "GANG,SUSPEND"),
              Contains(AllOf(Is(Level::kWarning, "slurm preemption", "SUSPEND"), HasAdvice())));
  EXPECT_THAT(SlurmWith("PreemptType", "preempt/none"), Contains(Is(Level::kOk, "slurm preemption", "none")));
  EXPECT_THAT(SlurmWith("ProctrackType", "proctrack/pgid"),
              Contains(AllOf(Is(Level::kWarning, "slurm process tracking", "pgid"), HasAdvice())));
}

TEST(Nodes, ATaskOfAStepIsToldFromAScriptAndAShell) {
  const auto step = [](const std::string& id) {
    return IsTask([=](const std::string& name) { return name == "SLURM_STEP_ID" ? id : ""; });
  };
  EXPECT_TRUE(step("0"));
  EXPECT_FALSE(step(""));
  EXPECT_FALSE(step("4294967290")) << "the shell of an interactive step";
}

class Probes : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/doctor_test_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  std::filesystem::path root_;
};

TEST_F(Probes, TheSmallestControlGroupCounts) {
  Write("proc/self/cgroup", "0::/job/step\n");
  Write("sys/fs/cgroup/job/memory.max", "1000\n");
  Write("sys/fs/cgroup/job/memory.current", "10\n");
  Write("sys/fs/cgroup/job/step/memory.max", "max\n");
  Write("sys/fs/cgroup/memory.max", "2000\n");
  Write("sys/fs/cgroup/job/step/cpu.max", "150000 100000\n");
  Write("sys/fs/cgroup/cpu.max", "max 100000\n");
  const GroupLimits limits = ReadGroupLimits(root_);
  EXPECT_EQ(limits.memory_bytes, 1000);
  EXPECT_EQ(limits.memory_used_bytes, 10);
  EXPECT_EQ(limits.processor_threads, 1.5);
}

TEST_F(Probes, ControlGroupsOfVersionOneAreRead) {
  Write("proc/self/cgroup", "4:memory:/a\n3:cpu,cpuacct:/a\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000\n");
  Write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  const GroupLimits limits = ReadGroupLimits(root_);
  EXPECT_EQ(limits.memory_bytes, 5000);
  EXPECT_FALSE(limits.processor_threads.has_value());
}

TEST_F(Probes, MemoryProcessorsAndContainersAreReadWhereTheKernelSaysThem) {
  Write("proc/meminfo", "MemTotal:       2048 kB\nMemAvailable:   1024 kB\n");
  Write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  Write("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,4\n");
  Write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
  EXPECT_EQ(ProbeMemory(root_).machine_bytes, 2 << 20);
  EXPECT_EQ(ProbeMemory(root_).available_bytes, 1 << 20);
  EXPECT_EQ(ProbeMemory(root_).huge_pages, "madvise");
  EXPECT_EQ(ProbeProcessor(root_).threads_per_core, 2);
  EXPECT_EQ(ProbeProcessor(root_).governor, "performance");
  EXPECT_EQ(ProbeContainer(root_), "");
  Write("proc/1/cgroup", "0::/kubepods/besteffort\n");
  EXPECT_EQ(ProbeContainer(root_), "kubepods");
  Write(".dockerenv", "");
  EXPECT_EQ(ProbeContainer(root_), "docker");
}

TEST_F(Probes, ThisMachineHasWhatEveryMachineHas) {
  const SystemFacts facts = ProbeSystem("/");
  EXPECT_NE(facts.host, "");
  EXPECT_GT(facts.memory.machine_bytes, 0);
  EXPECT_GE(facts.processor.threads, 1);
  EXPECT_GE(facts.user_threads, 1);
  EXPECT_TRUE(facts.memory.sharing.ok()) << facts.memory.sharing;
}

TEST_F(Probes, ADiskIsTriedAndLeftAsItWas) {
  const DiskFacts disk = ProbeDisk("run folder", root_ / "not" / "there", {.megabytes = 1, .replacements = 3});
  EXPECT_TRUE(disk.writable.ok()) << disk.writable;
  EXPECT_EQ(disk.tried, root_.lexically_normal().string());
  EXPECT_GT(disk.write_mb_per_s, 0);
  EXPECT_GT(disk.sync_max, absl::ZeroDuration());
  EXPECT_GE(disk.sync_max, disk.sync_median);
  EXPECT_TRUE(disk.locks.ok()) << disk.locks;
  EXPECT_TRUE(disk.record_locks.ok()) << disk.record_locks;
  EXPECT_TRUE(disk.renames.ok()) << disk.renames;
  EXPECT_GT(disk.free_bytes, 0);
  EXPECT_TRUE(std::filesystem::is_empty(root_));
}

TEST_F(Probes, WhatCannotBeWrittenIsSaid) {
  EXPECT_THAT(std::string(ProbeDisk("run folder", "/proc/nowhere", {}).writable.message()), HasSubstr("/proc"));
}

TEST_F(Probes, PortsThatOthersHaveAreNotFree) {
  const absl::StatusOr<Socket> taken = Socket::Listen("127.0.0.1");
  ASSERT_TRUE(taken.ok()) << taken.status();
  const std::string port = taken->Address().substr(taken->Address().rfind(':') + 1);
  job::Network network = JobOf("{}").network();
  EXPECT_TRUE(ProbePorts(network, 2).listening.ok());
  network.set_ports(absl::StrCat(port, "-", port));
  network.set_metrics_port(static_cast<uint32_t>(std::stoul(port)));
  const PortFacts facts = ProbePorts(network, 2);
  EXPECT_EQ(facts.range_size, 1);
  EXPECT_EQ(facts.range_free, 0);
  EXPECT_THAT(std::string(facts.metrics_port.message()), HasSubstr("Address already in use"));
  network.set_listen("192.0.2.1");
  EXPECT_THAT(std::string(ProbePorts(network, 2).listening.message()), HasSubstr("192.0.2.1"));
  network.set_interface("nosuch0");
  EXPECT_THAT(std::string(ProbePorts(network, 2).listening.message()), HasSubstr("nosuch0"));
}

// Two ends in one process.
TEST(Peer, TheLinkIsMeasuredAndTheFindingsCome) {
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  const absl::StatusOr<Socket> listener = Socket::Listen("127.0.0.1");
  ASSERT_TRUE(listener.ok()) << listener.status();
  absl::Status answered;
  std::thread other([&] {
    const absl::StatusOr<Socket> socket = Socket::Connect(listener->Address(), deadline);
    answered = socket.ok()
                   ? AnswerLink(*socket, {.findings = "what I found", .token = "", .listener = nullptr}, deadline)
                   : socket.status();
  });
  const absl::StatusOr<Socket> peer = listener->Accept(deadline);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ(*AskFindings(*peer, deadline), "what I found");
  const absl::StatusOr<LinkFacts> link =
      MeasureLink(*peer, {.bounces = 5, .seconds = absl::Milliseconds(20), .megabytes = 8}, deadline);
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_GT(link->to_mb_per_s, 1);
  EXPECT_GT(link->from_mb_per_s, 1);
  // One clock: it agrees with itself to within what the answer took.
  EXPECT_LE(absl::AbsDuration(link->clock_ahead), link->round_trip);
  EXPECT_TRUE(EndLink(*peer, deadline).ok());
  other.join();
  EXPECT_TRUE(answered.ok()) << answered;
}

TEST(Peer, WhoSaysNothingOrNonsenseIsGivenUp) {
  const absl::StatusOr<Socket> listener = Socket::Listen("127.0.0.1");
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(listener->Accept(absl::Now() + absl::Milliseconds(5)).status()));
  const absl::StatusOr<Socket> one = Socket::Connect(listener->Address(), absl::Now() + absl::Seconds(10));
  const absl::StatusOr<Socket> other = listener->Accept(absl::Now() + absl::Seconds(10));
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(AskFindings(*other, absl::Now() + absl::Milliseconds(5)).status()));
  ASSERT_TRUE(other->Send("x", 1, absl::Now() + absl::Seconds(10)).ok());
  char asked = 0;
  EXPECT_TRUE(one->Send("\xff\xff\xff\xff", 4, absl::Now() + absl::Seconds(10)).ok());
  EXPECT_TRUE(absl::IsOutOfRange(AskFindings(*other, absl::Now() + absl::Seconds(10)).status()));
  ASSERT_TRUE(one->Receive(&asked, 1, absl::Now() + absl::Seconds(10)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(AnswerLink(*one, {}, absl::Now() + absl::Seconds(10)))) << "the byte x";
}

TEST(Report, SaysWhatIsNeededAndCounts) {
  const std::vector<Examined> machines = {
      {"n1", {Fine("clock", "synchronised"), {Level::kProblem, "ports", "taken", "free ones", "end what is there"}}},
      {"n2", {{Level::kWarning, "governor", "powersave", "performance", "cpupower"}}}};
  const std::string text = RenderText(machines);
  EXPECT_THAT(text, HasSubstr("problem  ports                  taken\n"));
  EXPECT_THAT(text, HasSubstr("needed: free ones\n"));
  EXPECT_THAT(text, HasSubstr("to do:  end what is there\n"));
  EXPECT_THAT(text, ::testing::EndsWith("2 machines: 1 problem, 1 warning\n"));
  EXPECT_THAT(RenderJson(machines), HasSubstr("\"problems\": 1"));
}

TEST(Report, AMachineIsReadBackAsItWasWritten) {
  const Examined machine = {"n1", {Skipped("gpu", "none"), {Level::kWarning, "a", "b \"\xff", "c", "d"}}};
  const absl::StatusOr<Examined> back = ParseMachine(RenderMachine(machine));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->host, "n1");
  ASSERT_EQ(back->findings.size(), 2);
  EXPECT_EQ(back->findings[0].level, Level::kSkipped);
  EXPECT_EQ(back->findings[1].level, Level::kWarning);
  EXPECT_EQ(back->findings[1].advice, "d");
  for (const char* text : {"", "{", "[]", "{\"findings\": 1}"}) EXPECT_FALSE(ParseMachine(text).ok()) << text;
  EXPECT_EQ(ParseMachine("{\"findings\": [1]}")->findings[0].level, Level::kProblem);
}

}  // namespace
}  // namespace slackline::cli::doctor::doctor_test
