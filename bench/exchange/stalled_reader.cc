#include "bench/exchange/stalled_reader.h"

#include <unistd.h>

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/exchange/plain_stream.h"

namespace slackline::bench {
namespace {

constexpr absl::Duration kLetInTimeout = absl::Seconds(60);
// Beyond the numbers of members.
constexpr uint32_t kFirstReader = 1000;

// Asks for all shards of the server, and leaves it at that.
void AskForAll(const worker::ShardMap& map, const worker::ServerInfo& server, PlainStream& stream) {
  wire::WorkerFrame frame = stream.Frame();
  wire::Pull& pull = *frame.add_items()->mutable_pull();
  pull.set_id(1);
  for (const worker::ShardInfo& shard : map.shards) {
    if (shard.server == server.server) pull.add_shards()->set_shard(shard.shard.value());
  }
  stream.Send(frame);
}

}  // namespace

std::unique_ptr<Child> StartStalledReader(const Cluster& cluster, uint32_t number) {
  auto reader = std::make_unique<Child>(absl::StrCat("stalled reader ", number), [&](const Channel& channel) {
    std::vector<std::unique_ptr<PlainStream>> streams;
    for (const worker::ServerInfo& server : cluster.map().servers) {
      streams.push_back(std::make_unique<PlainStream>(cluster.map(), server, wire::ROLE_READER, kFirstReader + number));
      AskForAll(cluster.map(), server, *streams.back());
    }
    channel.Send(true);
    while (true) pause();
  });
  bool asked = false;
  if (!reader->channel().Receive(&asked, kLetInTimeout)) {
    ExitOnError(absl::UnavailableError(absl::StrCat(reader->name(), " was not let in")));
  }
  return reader;
}

}  // namespace slackline::bench
