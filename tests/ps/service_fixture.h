// Shared code for tests of the service: a job, frames, and a peer that keeps what it is told.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/metrics/metrics.h"
#include "common/rpc/frame.h"
#include "job.pb.h"
#include "parameter_server.pb.h"
#include "ps/host/peer.h"

namespace slackline::ps {

// Returns the payload as it would come from the network.
inline rpc::Payload AsPayload(const std::string& bytes) {
  wire::WorkerFrame frame;
  frame.set_payload(bytes);
  const std::string text = frame.SerializeAsString();
  const grpc::Slice slice(text);
  wire::WorkerFrame header;
  return *rpc::Parse(grpc::ByteBuffer(&slice, 1), header);
}

inline std::string Floats(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

inline std::string Floats(size_t count, float value) { return Floats(std::vector<float>(count, value)); }

// Returns a job with SGD, lr 1 and no momentum: weights fall by exactly the gradient.
inline job::Job PlainJob(job::Consistency::Mode mode = job::Consistency::ASYNC) {
  job::Job job;
  job.mutable_optimizer()->set_lr(1);
  job.mutable_training()->set_batch_size(1);
  job.mutable_consistency()->set_mode(mode);
  job.mutable_wire()->set_chunk_bytes(4096);
  job.mutable_cluster()->set_workers(2);
  job.mutable_limits();
  return job;
}

// Keeps what it is told.
//
// Thread-safety: none.
class RecordingPeer : public Peer {
 public:
  void Send(const wire::ServerItem& item) override { items.push_back(item); }
  void Serve(PullReply reply) override { replies.push_back(std::move(reply)); }
  void Release(ShardId shard, PullId id) override { releases.emplace_back(shard, id); }
  void End(const absl::Status& status) override { ended = status; }

  // Returns the last item and forgets all items.
  wire::ServerItem Take() {
    wire::ServerItem last = items.empty() ? wire::ServerItem() : items.back();
    items.clear();
    return last;
  }

  std::vector<wire::ServerItem> items;
  std::vector<PullReply> replies;
  std::vector<std::pair<ShardId, PullId>> releases;
  std::optional<absl::Status> ended;
};

}  // namespace slackline::ps
