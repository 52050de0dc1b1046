// The part of ShardTable that deals with workers of the same host: who may read and write which memory.
#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "ps/service/shard_table.h"

namespace slackline::ps {
namespace {

constexpr size_t kTokenBytes = 16;

std::string RandomToken() {
  std::string token(kTokenBytes, '\0');
  SLACKLINE_CHECK(getrandom(token.data(), token.size(), 0) == static_cast<ssize_t>(token.size()));
  return token;
}

}  // namespace

absl::StatusOr<ShardTable::SegmentGrant> ShardTable::GrantSegments(
    const wire::SegmentRequest& request, std::shared_ptr<const shm::MappedSegment> push_segment) {
  if (installed_.empty() || feed_ != nullptr) {
    return absl::UnavailableError("the server has no shards to share yet; try again");
  }
  if (absl::Status status = CheckJob(JobId(request.job())); !status.ok()) return status;
  ForgetOldGrants();
  if (grants_.size() >= job_.limits().streams_max()) {
    return absl::ResourceExhaustedError(absl::StrCat(grants_.size(), " workers were given shared memory and have not ",
                                                     "opened a stream; allowed are ", job_.limits().streams_max()));
  }
  SegmentGrant grant;
  for (const auto& [id, host] : hosts_) {
    if (host->segment() == nullptr) continue;
    wire::ShardSegment& segment = *grant.offer.add_shards();
    segment.set_shard(id);
    segment.set_bytes(host->segment()->bytes());
    grant.descriptors.push_back(host->segment()->descriptor());
  }
  if (grant.descriptors.empty()) return absl::UnavailableError("the shards do not lie in shared memory");
  absl::StatusOr<std::unique_ptr<shm::LoanFlag>> flag = shm::LoanFlag::Create();
  if (!flag.ok()) return flag.status();
  grant.descriptors.push_back((*flag)->descriptor());
  grant.offer.set_token(RandomToken());
  grants_[grant.offer.token()] = {{WorkerId(request.worker()), Incarnation(request.incarnation())},
                                  std::move(push_segment),
                                  *std::move(flag),
                                  time_.Now()};
  return grant;
}

void ShardTable::ForgetOldGrants() {
  const absl::Time since = time_.Now() - timeouts_.worker_dead();
  std::erase_if(grants_, [&](const auto& grant) { return grant.second.since < since; });
}

void ShardTable::TakeGrant(const std::string& token, Caller& caller) {
  ForgetOldGrants();
  const auto grant = grants_.find(token);
  if (grant == grants_.end() || (!caller.reader && grant->second.sender != caller.sender)) return;
  caller.shared_memory = true;
  caller.push_segment = std::move(grant->second.push_segment);
  caller.loan = std::move(grant->second.loan);
  grants_.erase(grant);
}

absl::StatusOr<rpc::Payload> ShardTable::FindInSegment(const Caller& caller, const wire::PushChunk& chunk,
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

void ShardTable::Release(const Caller& caller, const wire::Release& release) {
  if (absl::Status status = CheckCount("release", release.shards_size()); !status.ok()) {
    return Refuse(*caller.peer, wire::WorkerItem(), status);
  }
  for (const uint32_t shard : release.shards()) caller.peer->Release(ShardId(shard), PullId(release.id()));
}

}  // namespace slackline::ps
