// A process of its own for tests in which one dies or is measured. Says one line on its standard output and then lives
// until it is killed, or its standard input is closed.
//
//   peer_process keeper ADDRESS SOCKET   worker 2 with shared memory: pulls shard 0 and never releases it;
//                                        says "holding VERSION"
//   peer_process server ELEMENTS WORKERS a server with four shards that stages one model;
//                                        says "address", ADDRESS, HOST, SOCKET, MEMORY_SOCKET with tabs between
#include <unistd.h>

#include <iostream>
#include <string>

#include "tests/exchange/raw_stream.h"

namespace slackline {
namespace {

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

int Serve(uint64_t elements, uint32_t workers) {
  rpc::PrepareProcess();
  ClusterShape shape;
  shape.shards = std::vector<uint64_t>(4, elements / 4);
  shape.workers = workers;
  shape.change = [&](job::Job& job) {
    job.mutable_wire()->set_chunk_bytes(1 << 20);
    job.mutable_limits()->set_staging_bytes_max(elements * sizeof(float));
  };
  Cluster cluster(shape);
  const worker::ServerInfo& info = cluster.map().servers[0];
  std::cout << "address\t" << info.address << "\t" << info.host << "\t" << info.socket << "\t" << info.memory_socket
            << std::endl;
  Live();
  return 0;
}

}  // namespace
}  // namespace slackline

int main(int argc, char** argv) {
  const std::string role = argc == 4 ? argv[1] : "";
  if (role == "keeper") return slackline::Keep(argv[2], argv[3]);
  if (role == "server") return slackline::Serve(std::stoull(argv[2]), static_cast<uint32_t>(std::stoul(argv[3])));
  return 2;
}
