#include "worker/client/shared_memory.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/shm/descriptor_exchange.h"
#include "common/shm/host.h"
#include "parameter_server.pb.h"

namespace slackline::worker {

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Join(const ServerInfo& server, const ClientOptions& options,
                                                                 absl::Duration timeout) {
  wire::SegmentRequest request;
  request.set_job(options.job.value());
  request.set_worker(options.worker.value());
  request.set_incarnation(options.incarnation.value());
  std::vector<int> descriptors;
  if (options.push_segment != nullptr) {
    request.set_bytes(options.push_segment->bytes());
    descriptors.push_back(options.push_segment->descriptor()->get());
  }
  absl::StatusOr<shm::DescriptorMessage> reply =
      shm::Exchange(server.memory_socket, request.SerializeAsString(), descriptors, timeout);
  if (!reply.ok()) return reply.status();
  wire::SegmentOffer offer;
  if (!offer.ParseFromString(reply->message) ||
      static_cast<size_t>(offer.shards_size()) + 1 != reply->descriptors.size()) {
    return absl::InternalError(absl::StrCat("the server offered ", offer.shards_size(), " segments and sent ",
                                            reply->descriptors.size(),
                                            " descriptors; expected is one a segment, and one more"));
  }
  auto memory = std::make_unique<SharedMemory>();
  memory->token_ = offer.token();
  for (int i = 0; i < offer.shards_size(); ++i) {
    const wire::ShardSegment& shard = offer.shards(i);
    auto mapped =
        shm::MappedSegment::Map(std::move(reply->descriptors[static_cast<size_t>(i)]),
                                {.bytes_min = std::max<uint64_t>(1, shard.bytes()), .bytes_max = shard.bytes()});
    if (!mapped.ok()) return mapped.status();
    memory->shards_[ShardId(shard.shard())] = *std::move(mapped);
  }
  auto loan = shm::LoanFlagView::Map(std::move(reply->descriptors.back()));
  if (!loan.ok()) return loan.status();
  memory->loan_ = *std::move(loan);
  return memory;
}

absl::StatusOr<rpc::Payload> SharedMemory::Find(ShardId shard, uint64_t offset, uint64_t elements) const {
  const auto found = shards_.find(shard);
  if (found == shards_.end()) return absl::InternalError("a chunk in a segment that was not offered");
  const uint64_t bytes = found->second->bytes();
  if (offset > bytes || elements > (bytes - offset) / sizeof(float)) {
    return absl::InternalError(
        absl::StrCat("a chunk of ", elements, " elements at byte ", offset, " of a segment of ", bytes, " bytes"));
  }
  return rpc::Payload({found->second->data() + offset, elements * sizeof(float)}, found->second);
}

bool MayShareMemory(const ServerInfo& server, const ClientOptions& options) {
  return options.same_host == SameHost::kSharedMemory && !server.memory_socket.empty() && !server.host.empty() &&
         server.host == shm::SocketScope();
}

std::optional<uint64_t> OffsetInSegment(const shm::Segment* segment, absl::Span<const float> values) {
  if (segment == nullptr) return std::nullopt;
  const auto* const begin = reinterpret_cast<const std::byte*>(values.data());
  const std::byte* const end = begin + values.size() * sizeof(float);
  if (begin < segment->data() || end > segment->data() + segment->bytes()) return std::nullopt;
  return static_cast<uint64_t>(begin - segment->data());
}

}  // namespace slackline::worker
