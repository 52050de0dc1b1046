#include "ps/service/segment_grants.h"

#include <sys/random.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace slackline::ps {
namespace {

constexpr size_t kTokenBytes = 16;

std::string RandomToken() {
  std::string token(kTokenBytes, '\0');
  SLACKLINE_CHECK(getrandom(token.data(), token.size(), 0) == static_cast<ssize_t>(token.size()));
  return token;
}

}  // namespace

absl::StatusOr<SegmentGrant> SegmentGrants::Add(const Sender& sender,
                                                const std::map<uint32_t, std::unique_ptr<ShardHost>>& shards,
                                                std::shared_ptr<const shm::MappedSegment> push_segment) {
  ForgetOld();
  if (granted_.size() >= grants_max_) {
    return absl::ResourceExhaustedError(absl::StrCat(granted_.size(), " workers were given shared memory and have not ",
                                                     "opened a stream; allowed are ", grants_max_));
  }
  SegmentGrant grant;
  for (const auto& [id, shard] : shards) {
    if (shard->segment() == nullptr) continue;
    wire::ShardSegment& segment = *grant.offer.add_shards();
    segment.set_shard(id);
    segment.set_bytes(shard->segment()->bytes());
    grant.descriptors.push_back(shard->segment()->descriptor());
  }
  if (grant.descriptors.empty()) return absl::UnavailableError("the shards do not lie in shared memory");
  absl::StatusOr<std::unique_ptr<shm::LoanFlag>> flag = shm::LoanFlag::Create();
  if (!flag.ok()) return flag.status();
  grant.descriptors.push_back((*flag)->descriptor());
  grant.offer.set_token(RandomToken());
  granted_[grant.offer.token()] = {sender, std::move(push_segment), *std::move(flag), time_.Now()};
  return grant;
}

void SegmentGrants::ForgetOld() {
  const absl::Time since = time_.Now() - unused_max_;
  std::erase_if(granted_, [&](const auto& granted) { return granted.second.since < since; });
}

void SegmentGrants::Take(const std::string& token, Caller& caller) {
  ForgetOld();
  const auto granted = granted_.find(token);
  if (granted == granted_.end() || (!caller.reader && granted->second.sender != caller.sender)) return;
  caller.shared_memory = true;
  caller.push_segment = std::move(granted->second.push_segment);
  caller.loan = std::move(granted->second.loan);
  granted_.erase(granted);
}

absl::StatusOr<rpc::Payload> FindInSegment(const Caller& caller, const wire::PushChunk& chunk,
                                           const rpc::Payload& payload) {
  if (caller.push_segment == nullptr) {
    return absl::InvalidArgumentError("chunk in shared memory on a stream that has none");
  }
  if (payload.size() > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk in shared memory has ", payload.size(), " bytes of payload; allowed are 0"));
  }
  if (chunk.encoding() > wire::ENCODING_FP32) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk in shared memory has encoding ", chunk.encoding(), "; allowed is 1 (fp32)"));
  }
  const uint64_t bytes = caller.push_segment->bytes();
  const uint64_t offset = chunk.segment_offset();
  if (offset % sizeof(float) != 0 || offset > bytes || chunk.elements() > (bytes - offset) / sizeof(float)) {
    return absl::InvalidArgumentError(absl::StrCat("chunk of ", chunk.elements(), " elements at byte ", offset,
                                                   " of a segment of ", bytes,
                                                   " bytes; it must lie inside, at a multiple of 4"));
  }
  return rpc::Payload({caller.push_segment->data() + offset, chunk.elements() * sizeof(float)}, caller.push_segment);
}

}  // namespace slackline::ps
