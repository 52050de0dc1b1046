// The other end of a stream, as a shard sees it: a destination for frames.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/codec/codec.h"
#include "common/shm/loan_flag.h"
#include "common/shm/segment.h"
#include "parameter_server.pb.h"
#include "ps/consistency/engine.h"
#include "ps/shard/slice.h"

namespace slackline::ps {

// Version of a shard's weights, alive as long as a stream sends from it.
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

// Answer to a pull of one shard.
struct PullReply {
  ShardId shard;
  PullId id;
  Version version;
  Clock64 clock_min;
  // Weights to send; null if the version that the worker has is still current.
  std::shared_ptr<const PinnedView> weights;
  // Number of elements to send, from the first element of `weights` on.
  uint64_t elements = 0;
  // Number of replies for one shard that may wait to go out.
  uint32_t queued_max = 1;
  // True if the peer reads chunks in the shard's segment, and says when it is done with them.
  bool shared_memory = false;
  // Encoding of chunks within the first `encoded_elements` elements (those that gradients train). All other chunks go
  // out as fp32.
  codec::Encoding encoding = codec::Encoding::kFp32;
  uint64_t encoded_elements = 0;
};

// Receiver of a shard's frames; a stream implements it.
//
// Thread-safety: none; the sequencer calls it.
class Peer {
 public:
  virtual ~Peer() = default;

  // Queues an item; items go out in the order of these calls, small ones together.
  virtual void Send(const wire::ServerItem& item) = 0;
  // Queues the chunks of a pull and its PullDone. If queued_max replies for the shard have not begun to go out, the new
  // reply replaces the last of them, so that no queue grows without bound.
  virtual void Serve(PullReply reply) = 0;
  // Handles the message that the peer has read what it was lent in shared memory for this pull.
  virtual void Release(ShardId shard, PullId id) = 0;
  // Notes that an item of the peer had no effect: a piece of a refused push, or a pull that replaced another.
  virtual void Wasted() {}
  // Ends the stream and forgets all that is queued.
  virtual void End(const absl::Status& status) = 0;
  // Returns OK if the peer may be a worker. All peers may be readers.
  virtual absl::Status MayTrain() const { return absl::OkStatus(); }
};

// Stream that has said Hello.
struct Caller {
  Peer* peer = nullptr;
  Sender sender;
  // True for a reader, which only pulls and waits for no bound; `sender` is then meaningless.
  bool reader = false;
  // Number of unanswered pushes, and of unserved pulls, that the stream may have on a shard.
  uint32_t window = 1;
  // True if tensors need not travel on the stream.
  bool shared_memory = false;
  // Encoding of pulled weights on the stream: fp32 or bf16.
  codec::Encoding pull_encoding = codec::Encoding::kFp32;
  // Segment in which the worker's pushed chunks lie; null if there is none.
  std::shared_ptr<const shm::MappedSegment> push_segment = nullptr;
  // Flag that tells the process at the other end whether what it reads in the shards' segments is valid. Null without
  // shared memory. A shared_ptr only so that Caller can be copied.
  std::shared_ptr<shm::LoanFlag> loan = nullptr;
};

inline void ToWire(const Version& version, wire::Version& out) {
  out.set_lineage(version.lineage.value());
  out.set_number(version.number);
}
inline Version FromWire(const wire::Version& version) { return {Lineage(version.lineage()), version.number()}; }

}  // namespace slackline::ps
