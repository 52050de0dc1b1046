// What a server asks of its job before it takes shards.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/service/shard_table.h"
#include "tests/ps/service_fixture.h"

namespace slackline::ps {
namespace {

constexpr uint64_t kElements = 1000;
constexpr uint64_t kBytes = kElements * sizeof(float);

// Of two shards, on a server with room for `pushes` of its whole part of the model.
absl::Status Install(job::Job job, uint64_t pushes) {
  job.mutable_limits()->set_staging_bytes_max(pushes * 2 * kBytes);
  Metrics metrics;
  ServiceMetrics service_metrics(metrics);
  ManualTime time;
  ShardTable table(job, Timeouts(absl::Milliseconds(100)), service_metrics, time, {});
  table.SetIdentity({JobId(7), ServerId(1)});
  wire::InstallShardsRequest request;
  request.set_job(7);
  request.set_server(1);
  request.set_generation(1);
  request.set_samples_per_epoch(100);
  request.set_trained_elements(2 * kElements);
  for (uint32_t shard = 0; shard < 2; ++shard) {
    wire::ShardSpec& spec = *request.add_shards();
    spec.set_shard(shard);
    spec.set_begin(shard * kElements);
    spec.set_end((shard + 1) * kElements);
  }
  return table.Install(request);
}

// With two pushes of two workers in flight, a server with room for two could hold both of the first worker, and wait
// for the second one's for good.
TEST(Install, RefusesStagingThatCouldNotHoldAStep) {
  struct Case {
    job::Consistency::Mode mode;
    uint32_t window;
    uint64_t needed;
  };
  for (const Case& c : {Case{job::Consistency::ASYNC, 2, 1}, Case{job::Consistency::SSP, 2, 1},
                        Case{job::Consistency::BSP, 1, 3}, Case{job::Consistency::BSP, 2, 5},
                        Case{job::Consistency::QUORUM, 2, 5}, Case{job::Consistency::SOFTSYNC, 2, 3}}) {
    job::Job job = PlainJob(c.mode);
    job.mutable_cluster()->set_workers(3);
    job.mutable_wire()->set_window(c.window);
    EXPECT_TRUE(Install(job, c.needed).ok()) << job.DebugString();
    if (c.needed == 1) continue;
    const absl::Status status = Install(job, c.needed - 1);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), testing::HasSubstr(absl::StrCat("need at least ", c.needed * 2 * kBytes)));
  }
}

}  // namespace
}  // namespace slackline::ps
