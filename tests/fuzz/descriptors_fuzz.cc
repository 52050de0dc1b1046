// Packets with descriptors, from a worker that asks for shared memory and from a server that offers it: refused, or
// mapped so that all bytes can be read, from the first to the last.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/shm/descriptor_socket.h"
#include "common/shm/segment.h"
#include "parameter_server.pb.h"
#include "tests/fuzz/bytes_input.h"
#include "worker/client/shared_memory.h"

namespace slackline::fuzz {
namespace {

constexpr uint32_t kMagic = 0x736c6664;
constexpr uint32_t kPacketsMax = 3, kDescriptorsMax = 6;
constexpr absl::Duration kTimeout = absl::Milliseconds(200);

// One packet as it goes into the socket.
struct RawPacket {
  std::string bytes;
  std::vector<shm::Descriptor> descriptors;
};

// What a peer may hand over: segments, and things that are none.
shm::Descriptor MakeDescriptor(BytesInput& input) {
  const uint32_t kind = input.TakeUpTo(4), pages = input.TakeUpTo(3);
  if (kind == 0) return shm::Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (kind == 1) return shm::Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  shm::Descriptor memory(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  SLACKLINE_CHECK(::ftruncate(memory.get(), static_cast<off_t>(pages * shm::PageBytes() + (kind == 2))) == 0);
  if (kind >= 3) {
    const int seals = kind == 3 ? F_SEAL_GROW : F_SEAL_SHRINK | F_SEAL_GROW;
    SLACKLINE_CHECK(::fcntl(memory.get(), F_ADD_SEALS, seals) == 0);
  }
  return memory;
}

void Append(uint32_t number, std::string& bytes) { bytes.append(reinterpret_cast<const char*>(&number), 4); }

// The message is the one of the protocol with numbers from the input, or bytes.
std::string MakeMessage(BytesInput& input) {
  const uint32_t kind = input.TakeUpTo(2);
  if (kind == 0) return std::string(input.TakeBytes(input.Take<uint8_t>()));
  if (kind == 1) {
    wire::SegmentRequest request;
    request.set_job(input.Take<uint8_t>());
    request.set_bytes(input.TakeUpTo(1) == 0 ? input.Take<uint16_t>() : input.Take<uint64_t>());
    return request.SerializeAsString();
  }
  wire::SegmentOffer offer;
  offer.set_token("token");
  for (uint32_t shards = input.TakeUpTo(kDescriptorsMax); shards > 0; --shards) {
    wire::ShardSegment& shard = *offer.add_shards();
    shard.set_shard(input.TakeUpTo(3));
    shard.set_bytes(input.TakeUpTo(3) != 0 ? input.TakeUpTo(4) * shm::PageBytes() : input.Take<uint64_t>());
  }
  return offer.SerializeAsString();
}

RawPacket MakePacket(BytesInput& input) {
  RawPacket packet;
  const bool right = input.TakeUpTo(7) != 0;
  Append(right ? kMagic : input.Take<uint32_t>(), packet.bytes);
  Append(right && input.TakeUpTo(7) != 0 ? 0 : input.Take<uint32_t>(), packet.bytes);
  Append(right ? input.TakeUpTo(kDescriptorsMax) : input.Take<uint32_t>(), packet.bytes);
  packet.bytes += MakeMessage(input);
  if (input.TakeUpTo(15) == 15) packet.bytes.resize(input.TakeUpTo(20));
  for (uint32_t count = input.TakeUpTo(kDescriptorsMax); count > 0; --count) {
    packet.descriptors.push_back(MakeDescriptor(input));
  }
  return packet;
}

// By hand: SendPacket() says nothing wrong.
void SendRaw(int socket, const RawPacket& packet) {
  iovec piece = {const_cast<char*>(packet.bytes.data()), packet.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMax * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!packet.descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(packet.descriptors.size() * sizeof(int));
    cmsghdr* const side = CMSG_FIRSTHDR(&message);
    side->cmsg_level = SOL_SOCKET;
    side->cmsg_type = SCM_RIGHTS;
    side->cmsg_len = CMSG_LEN(packet.descriptors.size() * sizeof(int));
    std::vector<int> fds;
    for (const auto& descriptor : packet.descriptors) fds.push_back(descriptor.get());
    std::memcpy(CMSG_DATA(side), fds.data(), fds.size() * sizeof(int));
  }
  static_cast<void>(::sendmsg(socket, &message, MSG_NOSIGNAL));
}

unsigned ReadAll(const shm::MappedSegment& segment) {
  return std::accumulate(segment.data(), segment.data() + segment.bytes(), 0u,
                         [](unsigned sum, std::byte byte) { return sum + static_cast<unsigned>(byte); });
}

// As a server's desk takes a request.
void TryServer(BytesInput& input) {
  int sockets[2];
  SLACKLINE_CHECK(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
  const shm::Descriptor server(sockets[0]), worker(sockets[1]);
  SendRaw(worker.get(), MakePacket(input));
  static_cast<void>(::shutdown(worker.get(), SHUT_WR));
  absl::StatusOr<shm::Packet> packet = shm::ReceivePacket(server.get(), input.TakeUpTo(kDescriptorsMax));
  wire::SegmentRequest request;
  if (!packet.ok() || !request.ParseFromString(packet->message)) return;
  for (shm::Descriptor& descriptor : packet->descriptors) {
    const auto segment = shm::MappedSegment::Map(
        std::move(descriptor), {.bytes_min = std::max<uint64_t>(1, request.bytes()), .bytes_max = uint64_t{1} << 42});
    if (segment.ok()) SLACKLINE_CHECK((*segment)->bytes() >= request.bytes() && ReadAll(**segment) == 0);
  }
}

shm::Descriptor Listen(const std::string& name) {
  const auto address = shm::MakeAbstractAddress(name);
  shm::Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  SLACKLINE_CHECK(address.ok() && ::bind(socket.get(), address->get(), address->bytes) == 0);
  SLACKLINE_CHECK(::listen(socket.get(), 1) == 0);
  return socket;
}

// As a worker joins a server's memory.
void TryWorker(BytesInput& input) {
  const std::string name = shm::RandomAbstractName().value();
  const shm::Descriptor listening = Listen(name);
  std::vector<RawPacket> packets(input.TakeUpTo(kPacketsMax));
  for (RawPacket& packet : packets) packet = MakePacket(input);
  std::thread server([&] {
    const shm::Descriptor socket(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    shm::ReceivePacket(socket.get(), kDescriptorsMax).status().IgnoreError();
    for (const RawPacket& packet : packets) SendRaw(socket.get(), packet);
  });
  worker::ServerInfo info;
  info.memory_socket = name;
  const auto memory = worker::SharedMemory::Join(info, worker::ClientOptions(), kTimeout);
  server.join();
  if (!memory.ok()) return;
  static_cast<void>((*memory)->StillLent());
  for (uint32_t shard = 0; shard < 4; ++shard) {
    const uint64_t offset = input.Take<uint16_t>(), elements = input.Take<uint16_t>();
    const auto found = (*memory)->Find(ShardId(shard), offset, elements);
    if (!found.ok()) continue;
    std::string bytes(found->size(), '\0');
    ByteReader(found->segments()).Read(bytes.data(), bytes.size());
  }
}

}  // namespace
}  // namespace slackline::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  slackline::fuzz::BytesInput input(data, size);
  if (input.TakeUpTo(1) == 0) {
    slackline::fuzz::TryServer(input);
  } else {
    slackline::fuzz::TryWorker(input);
  }
  return 0;
}
