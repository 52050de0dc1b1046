// A process that writes snapshots is killed at any moment: afterwards a whole snapshot is present, no older than the
// last one that the process was told is kept. This program opens no database itself, so that it may fork.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ps/store/snapshot_store.h"

namespace slackline::ps::snapshot_kill_test {
namespace {

constexpr uint64_t kSize = 200'000, kTrained = 190'000, kBlock = 16'384;

const ShardIdentity kIdentity = {.job = JobId(1),
                                 .shard = ShardId(0),
                                 .extent = {.begin = 0, .end = kSize, .trained = kTrained},
                                 .arrays = {"momentum_buffer"}};

ShardState MakeShard() {
  const OptimizerConfig config{.kind = OptimizerKind::kSgd, .lr = 1, .momentum = 0.5};
  return ShardState(kIdentity.extent, config, kBlock);
}

absl::Span<const std::byte> Raw(const std::vector<float>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
}

// All weights are the version's number, all momenta its opposite of the last step.
bool IsWhole(const ShardState& shard, uint64_t number) {
  const auto all_are = [](const SliceView& view, float value) {
    for (size_t i = 0; i < view.chunks(); ++i) {
      if (!std::all_of(view.chunk(i).begin(), view.chunk(i).end(), [=](float other) { return other == value; })) {
        return false;
      }
    }
    return true;
  };
  const ShardView view = shard.Snapshot();
  return all_are(view.weights, static_cast<float>(number)) && all_are(view.arrays[0], -1) &&
         view.progress.steps == number;
}

// Goes on where the folder stands, and says each version that is kept.
[[noreturn]] void WriteForever(const StoreOptions& options, int told) {
  auto store = SnapshotStore::Open(options, kIdentity);
  if (!store.ok()) ::_exit(10);
  ShardState shard = MakeShard();
  EngineState engine = {.version = {Lineage(1), 0}, .samples_applied = 0, .clock_floor = {}, .workers = {}};
  if ((*store)->kept().empty()) {
    if (!shard.Seed(ByteSegments(Raw(std::vector<float>(kSize, 0)))).ok()) ::_exit(11);
  } else {
    const auto restored = (*store)->Read((*store)->kept().front().id, shard);
    if (!restored.ok()) ::_exit(12);
    engine = *restored;
  }
  while (true) {
    // The first step leaves a momentum of g, each further one of g' = g - g / 2: always -1, which adds 1.
    const std::vector<float> gradient(kSize, engine.version.number == 0 ? -1.0f : -0.5f);
    std::vector<float> averaged(gradient);
    const uint64_t number = ++engine.version.number;
    std::fill(averaged.begin() + kTrained, averaged.end(), static_cast<float>(number));
    Contribution part = {.pieces = {{.elements = kSize, .bytes = ByteSegments(Raw(averaged))}}};
    shard.Apply({part}, {.samples = 1});
    if (!(*store)->Write({.numbers = shard.Snapshot(), .engine = engine, .taken = absl::Now()}).ok()) ::_exit(13);
    if (::write(told, &number, sizeof(number)) != sizeof(number)) ::_exit(14);
  }
}

// Exit codes: 0 whole, and at least `least`.
[[noreturn]] void Verify(const StoreOptions& options, uint64_t least) {
  auto store = SnapshotStore::Open(options, kIdentity);
  if (!store.ok()) ::_exit(20);
  uint64_t newest = 0;
  for (const KeptSnapshot& kept : (*store)->kept()) {
    ShardState shard = MakeShard();
    if (!(*store)->Read(kept.id, shard).ok()) ::_exit(21);
    if (!IsWhole(shard, kept.version.number)) ::_exit(22);
    newest = std::max(newest, kept.version.number);
  }
  ::_exit(newest < least ? 23 : 0);
}

int ExitCode(pid_t child) {
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(SnapshotKill, WhatIsKeptIsWholeAfterAKillAtAnyMoment) {
  std::string folder = ::testing::TempDir() + "/snapshot_kill_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const StoreOptions options = {.folder = folder + "/shard-0", .keep = 2, .file_bytes = 500'000};
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  uint64_t newest = 0;
  for (int round = 0; round < 12; ++round) {
    int told[2];
    ASSERT_EQ(::pipe(told), 0);
    const absl::Time begin = absl::Now();
    const pid_t writer = ::fork();
    ASSERT_GE(writer, 0);
    if (writer == 0) WriteForever(options, told[1]);
    ::close(told[1]);
    // It has begun to write when it has told of one; then it dies somewhere in the next ones.
    uint64_t number = 0;
    ASSERT_EQ(::read(told[0], &number, sizeof(number)), static_cast<ssize_t>(sizeof(number))) << ExitCode(writer);
    // Snapshots take longer on a machine that is busy.
    const absl::Duration window = std::max(absl::Milliseconds(60), absl::Now() - begin);
    const absl::Time moment = absl::Now() + absl::Microseconds(random() % absl::ToInt64Microseconds(window));
    while (absl::Now() < moment) ::sched_yield();
    ASSERT_EQ(::kill(writer, SIGKILL), 0);
    EXPECT_EQ(ExitCode(writer), -1);
    do {
      newest = std::max(newest, number);
    } while (::read(told[0], &number, sizeof(number)) == static_cast<ssize_t>(sizeof(number)));
    ::close(told[0]);
    const pid_t verifier = ::fork();
    ASSERT_GE(verifier, 0);
    if (verifier == 0) Verify(options, newest);
    ASSERT_EQ(ExitCode(verifier), 0) << "round " << round;
  }
  EXPECT_GT(newest, 12u);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace slackline::ps::snapshot_kill_test
