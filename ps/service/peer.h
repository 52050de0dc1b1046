// Whoever is at the other end of a stream, as a shard sees it: somewhere to send frames to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "common/codec/codec.h"
#include "common/ids.h"
#include "common/shm/loan_flag.h"
#include "common/shm/segment.h"
#include "parameter_server.pb.h"
#include "ps/consistency/engine.h"
#include "ps/slice.h"

namespace slackline::ps {

// One version of a shard's weights, alive as long as somebody sends from it.
class PinnedView {
 public:
  // `on_unpinned` runs in the destructor, on any thread.
  PinnedView(const Version& version, SliceView view, std::function<void()> on_unpinned)
      : version_(version), view_(std::move(view)), on_unpinned_(std::move(on_unpinned)) {}
  PinnedView(const PinnedView&) = delete;
  PinnedView& operator=(const PinnedView&) = delete;
  ~PinnedView() {
    view_ = SliceView();
    if (on_unpinned_ != nullptr) on_unpinned_();
  }

  const Version& version() const { return version_; }
  const SliceView& view() const { return view_; }

 private:
  const Version version_;
  SliceView view_;
  const std::function<void()> on_unpinned_;
};

// The answer to a pull of one shard.
struct PullReply {
  ShardId shard;
  PullId id;
  Version version;
  Clock64 clock_min;
  // Null: what the worker has is still current.
  std::shared_ptr<const PinnedView> weights;
  // Of these, from the first on.
  uint64_t elements = 0;
  // So many replies for one shard may wait to go out.
  uint32_t queued_max = 1;
  // The peer reads chunks in the shard's segment, and says when it is done with them.
  bool shared_memory = false;
  // Of chunks that lie within the first so many elements (those that gradients train); all others go out as fp32.
  codec::Encoding encoding = codec::Encoding::kFp32;
  uint64_t encoded_elements = 0;
};

// Thread-safety: none; the sequencer calls it.
class Peer {
 public:
  virtual ~Peer() = default;

  // Queues an item; items go out in the order of these calls, small ones together.
  virtual void Send(const wire::ServerItem& item) = 0;
  // Queues the chunks of a pull and its PullDone. Where queued_max replies for the shard have not begun to go out, the
  // last of them is replaced, so that nobody can queue without bound.
  virtual void Serve(PullReply reply) = 0;
  // The peer has read what it was lent in shared memory for this pull.
  virtual void Release(ShardId shard, PullId id) = 0;
  // What it has sent leads to nothing: a piece of a push that was refused, a pull that took the place of another.
  virtual void Wasted() {}
  // Ends the stream; what is queued is forgotten.
  virtual void End(const absl::Status& status) = 0;
  // Whether it may be a worker. All may be readers.
  virtual absl::Status MayTrain() const { return absl::OkStatus(); }
};

// A stream that has said Hello.
struct Caller {
  Peer* peer = nullptr;
  Sender sender;
  // Only pulls, held by no bound; `sender` means nothing then.
  bool reader = false;
  // Unanswered pushes and unserved pulls it may have on a shard.
  uint32_t window = 1;
  // Tensors need not travel on the stream.
  bool shared_memory = false;
  // Of pulled weights on the stream: fp32 or bf16.
  codec::Encoding pull_encoding = codec::Encoding::kFp32;
  // Where its chunks in shared memory lie; null when it has none.
  std::shared_ptr<const shm::MappedSegment> push_segment = nullptr;
  // Tells the process at the other end whether it may believe what it reads in the shards' segments. Null without
  // shared memory; shared only for Caller to be copied.
  std::shared_ptr<shm::LoanFlag> loan = nullptr;
};

inline void ToWire(const Version& version, wire::Version& out) {
  out.set_lineage(version.lineage.value());
  out.set_number(version.number);
}
inline Version FromWire(const wire::Version& version) { return {Lineage(version.lineage()), version.number()}; }

}  // namespace slackline::ps
