// The scheduler's table of which nodes hold which images, under any sequence of questions and time: it survives,
// refuses with a reason, and sends no node to a file that makes no sense or to a node that cannot have it.
#include <map>
#include <string>

#include "common/base/check.h"
#include "scheduler/work/image_directory.h"
#include "tests/fuzz/bytes_input.h"

namespace slackline::scheduler {
namespace {

constexpr size_t kNodesMax = 5;
constexpr uint32_t kFilesMax = 40;
// Of nodes; some are none.
constexpr uint32_t kAddresses = 8;

std::string AddressOf(uint32_t number) {
  if (number == 0) return "";
  if (number == 1) return std::string(513, 'a');
  return "127.0.0.1:" + std::to_string(number);
}

bool Holds(const std::string& held, uint32_t file) {
  return (static_cast<unsigned char>(held[file / 8]) >> (file % 8) & 1) != 0;
}

wire::FindImagesRequest TakeQuestion(fuzz::BytesInput& input) {
  wire::FindImagesRequest request;
  request.set_address(AddressOf(input.TakeUpTo(kAddresses)));
  const uint8_t flags = input.Take<uint8_t>();
  request.set_wants((flags & 1) != 0);
  // As all others have it, or not.
  request.set_files((flags & 2) == 0 ? 11 : input.TakeUpTo(2 * kFilesMax));
  request.set_files_checksum((flags & 4) == 0 ? 7 : input.Take<uint64_t>());
  const size_t bytes = (flags & 8) == 0 ? (request.files() + 7) / 8 : input.TakeUpTo(20);
  std::string held(input.TakeBytes(bytes));
  held.resize(bytes, '\0');
  request.set_held(held);
  for (uint32_t i = input.TakeUpTo(3); i > 0; --i) request.add_failed(AddressOf(input.TakeUpTo(kAddresses)));
  request.set_patience_ms((flags & 16) == 0 ? 100 : input.Take<uint32_t>());
  request.set_spread((flags & 32) == 0 ? 5 : input.TakeUpTo(2 * kFilesMax));
  request.set_wants_share((flags & 64) != 0);
  if ((flags & 128) != 0) request.set_needs(input.TakeUpTo(kFilesMax));
  request.set_full(input.TakeUpTo(1) == 1);
  return request;
}

void CheckAnswer(const wire::FindImagesRequest& request, const wire::FindImagesReply& reply,
                 const std::map<std::string, std::string>& held) {
  SLACKLINE_CHECK(request.wants() || request.wants_share() || request.has_needs() || !reply.has_file());
  if (reply.has_drop()) {
    SLACKLINE_CHECK(request.full() && reply.drop() < request.spread() && Holds(request.held(), reply.drop()));
  }
  if (!reply.has_file()) return;
  SLACKLINE_CHECK(reply.file() < request.files());
  if (request.has_needs() && reply.file() == request.needs()) {
    SLACKLINE_CHECK(reply.file() < request.spread());
  } else {
    SLACKLINE_CHECK(!Holds(request.held(), reply.file()));
  }
  if (reply.from().empty()) return;
  SLACKLINE_CHECK(reply.from() != request.address());
  for (const std::string& failed : request.failed()) SLACKLINE_CHECK(reply.from() != failed);
  const auto from = held.find(reply.from());
  SLACKLINE_CHECK(from != held.end() && from->second.size() == request.held().size() &&
                  Holds(from->second, reply.file()));
}

void Play(fuzz::BytesInput& input) {
  ImageDirectory directory({.silence_max = absl::Seconds(1), .nodes_max = kNodesMax, .files_max = kFilesMax});
  absl::Time now = absl::UnixEpoch();
  // What each node has said last.
  std::map<std::string, std::string> held;
  while (input.left() > 0) {
    now += absl::Milliseconds(input.Take<uint8_t>() * 8);
    const wire::FindImagesRequest request = TakeQuestion(input);
    const absl::StatusOr<wire::FindImagesReply> reply = directory.Ask(request, now);
    if (reply.ok()) {
      held[request.address()] = request.held();
      CheckAnswer(request, *reply, held);
      continue;
    }
    const absl::Status& status = reply.status();
    SLACKLINE_CHECK(absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) ||
                    absl::IsResourceExhausted(status));
    SLACKLINE_CHECK(!status.message().empty());
  }
}

}  // namespace
}  // namespace slackline::scheduler

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  slackline::fuzz::BytesInput input(data, size);
  slackline::scheduler::Play(input);
  return 0;
}
