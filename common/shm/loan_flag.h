// One word of shared memory by which the writer of segments tells a reader in another process whether what it was
// lent may still be read.
//
// A reader copies first and asks then. If the answer is yes, the copy is whole: the writer clears the flag before it
// writes to anything that was lent. A dead writer writes nothing, so that its flag may stay up.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/shm/segment.h"

namespace slackline::shm {

// The writer's side. What it lends is one loan: all of it is taken back at once.
//
// Thread-safety: none.
class LoanFlag {
 public:
  // The flag is up.
  //   as Segment::Create()
  static absl::StatusOr<std::unique_ptr<LoanFlag>> Create();

  // For LoanFlagView::Map() in the reader.
  const SharedDescriptor& descriptor() const { return segment_->descriptor(); }
  // From here on nothing that was lent may be believed. Call it before writing there.
  void TakeBack();

 private:
  explicit LoanFlag(std::unique_ptr<Segment> segment) : segment_(std::move(segment)) {}

  const std::unique_ptr<Segment> segment_;
};

// The reader's side.
//
// Thread-safety: safe.
class LoanFlagView {
 public:
  //   as MappedSegment::Map()
  static absl::StatusOr<std::unique_ptr<LoanFlagView>> Map(Descriptor descriptor);

  // True if all that this thread has read of the loan so far was read while it was still lent.
  bool StillLent() const;

 private:
  explicit LoanFlagView(std::unique_ptr<MappedSegment> segment) : segment_(std::move(segment)) {}

  const std::unique_ptr<MappedSegment> segment_;
};

}  // namespace slackline::shm
