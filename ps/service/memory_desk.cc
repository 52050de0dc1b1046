#include "ps/service/memory_desk.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/shm/segment.h"

namespace slackline::ps {
namespace {

// A mapping costs address space. Memory it costs where the worker has written, and where a push of it has been read.
constexpr uint64_t kPushSegmentBytesMax = uint64_t{1} << 42;

}  // namespace

absl::StatusOr<std::unique_ptr<MemoryDesk>> MemoryDesk::Open(Mailbox& mailbox, ShardTable& table,
                                                             absl::Duration timeout) {
  std::unique_ptr<MemoryDesk> desk(new MemoryDesk(mailbox, table, timeout));
  auto listener = shm::DescriptorListener::Start(
      {.name = "", .peer_timeout = timeout},
      [desk = desk.get()](shm::DescriptorMessage request) { return desk->Serve(std::move(request)); });
  if (!listener.ok()) return listener.status();
  desk->listener_ = *std::move(listener);
  return desk;
}

absl::StatusOr<shm::DescriptorReply> MemoryDesk::Serve(shm::DescriptorMessage message) {
  wire::SegmentRequest request;
  if (!request.ParseFromString(message.message)) return absl::InvalidArgumentError("not a SegmentRequest");
  if (message.descriptors.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(message.descriptors.size(), " descriptors came; allowed is the one of the push segment"));
  }
  std::shared_ptr<const shm::MappedSegment> push_segment;
  if (!message.descriptors.empty()) {
    auto mapped = shm::MappedSegment::Map(
        std::move(message.descriptors[0]),
        {.bytes_min = std::max<uint64_t>(1, request.bytes()), .bytes_max = kPushSegmentBytesMax});
    if (!mapped.ok()) return mapped.status();
    push_segment = *std::move(mapped);
  }
  using Grant = absl::StatusOr<SegmentGrant>;
  const absl::StatusOr<Grant> granted = mailbox_.Ask<Grant>(
      [this, request, push_segment] { return table_.GrantSegments(request, push_segment); }, timeout_);
  if (!granted.ok()) return granted.status();
  if (!granted->ok()) return granted->status();
  return shm::DescriptorReply{(*granted)->offer.SerializeAsString(), (*granted)->descriptors};
}

}  // namespace slackline::ps
