// A separate process for tests in which a process dies, is stopped, or is measured. It writes lines to its standard
// output and lives until it is killed or its standard input is closed.
//
//   peer_process keeper ADDRESS SOCKET   worker 2 with shared memory: pulls shard 0 and never releases it;
//                                        says "holding VERSION"
//   peer_process server ELEMENTS WORKERS STAGING_BYTES
//                                        a server with four shards; staging as the job file's limit says;
//                                        says "address SERVER", for ToServer()
//   peer_process worker NUMBER PATH SERVER ELEMENTS SHARDS
//                                        pushes 2 for every element, step by step; says "begins", and at the end
//                                        "made STEPS steps, AGAIN streams again" or "failed STATUS"
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <iostream>
#include <string>

#include "absl/strings/match.h"
#include "tests/exchange/raw_stream.h"

namespace slackline {
namespace {

bool ToldToEnd() {
  pollfd in = {STDIN_FILENO, POLLIN, 0};
  return ::poll(&in, 1, 0) != 0;
}

// Until the parent closes our standard input.
void Live() {
  char byte;
  while (::read(STDIN_FILENO, &byte, 1) > 0) continue;
}

int Keep(const std::string& address, const std::string& socket) {
  auto segment = *shm::Segment::Create({.name = "slackline-push", .bytes = 4096});
  absl::StatusOr<Granted> granted = AskForSegments(socket, 2, segment.get());
  if (!granted.ok()) return 1;
  auto mapped = *shm::MappedSegment::Map(std::move(granted->descriptors[0]), {.bytes_min = 1, .bytes_max = UINT64_MAX});
  RawStream stream(rpc::DataChannel(address), 2, granted->offer.token());
  stream.Write(PullItem(0, 1, 0));
  wire::ServerItem item;
  do {
    item = stream.ReadAnswer();
    if (!item.has_pull()) return 1;
  } while (!item.pull().has_done());
  std::cout << "holding " << item.pull().version().number() << std::endl;
  Live();
  return 0;
}

int Serve(uint64_t elements, uint32_t workers, uint64_t staging_bytes) {
  ClusterShape shape;
  shape.shards = std::vector<uint64_t>(4, elements / 4);
  shape.workers = workers;
  shape.change = [&](job::Job& job) {
    job.mutable_wire()->set_chunk_bytes(1 << 20);
    job.mutable_limits()->set_staging_bytes_max(staging_bytes);
  };
  Cluster cluster(shape);
  std::cout << "address " << ToLine(cluster.map().servers[0]) << std::endl;
  Live();
  return 0;
}

// Every push is the same for all elements, so that the elements of a shard differ only in a mixture of two versions.
absl::Status CheckWhole(const worker::ShardMap& map, absl::Span<const float> weights) {
  for (const worker::ShardInfo& shard : map.shards) {
    if (AllAre(weights[shard.begin], weights.subspan(shard.begin, shard.end - shard.begin))) continue;
    return absl::DataLossError(absl::StrCat("a mixture of versions in shard ", shard.shard.value()));
  }
  return absl::OkStatus();
}

absl::Status MakeStep(TestTrainer& trainer, const worker::ShardMap& map, absl::Span<const float> gradient) {
  trainer.BeginStep(gradient);
  const auto report = trainer.TryFinishStep(absl::Seconds(60));
  return report.ok() ? CheckWhole(map, trainer.parameters()) : report.status();
}

int Work(uint32_t number, Path path, const worker::ShardMap& map) {
  std::atomic<int> again = 0;
  worker::ClientOptions options = WorkerOptions(number, path);
  options.on_notice = [&](const std::string& notice) { again += absl::StrContains(notice, "open again"); };
  TestTrainer trainer(options, map);
  trainer.Seed(std::vector<float>(map.elements, 100));
  trainer.Pull();
  const std::vector<float> gradient(map.elements, 2);
  std::cout << "begins " << number << std::endl;
  int steps = 0;
  // The last step begins after it was told, so that it meets whatever happened to its streams before.
  for (bool last = false; !last; ++steps) {
    last = ToldToEnd();
    const absl::Status status = MakeStep(trainer, map, gradient);
    if (status.ok()) continue;
    std::cout << "failed " << status << std::endl;
    return 1;
  }
  std::cout << "made " << steps << " steps, " << again << " streams again" << std::endl;
  return 0;
}

}  // namespace
}  // namespace slackline

int main(int argc, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // one that is stopped would not see its standard input close
  slackline::rpc::PrepareProcess();
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "keeper" && argc == 4) return slackline::Keep(argv[2], argv[3]);
  if (role == "server" && argc == 5) {
    return slackline::Serve(std::stoull(argv[2]), static_cast<uint32_t>(std::stoul(argv[3])), std::stoull(argv[4]));
  }
  if (role == "worker" && argc == 7) {
    const auto shards = static_cast<uint32_t>(std::stoul(argv[6]));
    return slackline::Work(static_cast<uint32_t>(std::stoul(argv[2])), *slackline::ToPath(argv[3]),
                           slackline::MapOf(slackline::ToServer(argv[4]), std::stoull(argv[5]), shards));
  }
  return 2;
}
