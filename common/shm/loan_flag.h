// A word of shared memory. With it the writer of segments tells a reader in another process whether the memory lent to
// it may still be read.
//
// A reader first copies, then checks the flag. If the flag is up, the copy is consistent: the writer clears the flag
// before it writes to anything that was lent. A dead writer writes nothing, so its flag may stay up.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/shm/segment.h"

namespace slackline::shm {

// The writer's side. All memory lent under one flag is one loan: all of it is taken back at once.
//
// Thread-safety: none.
class LoanFlag {
 public:
  // Creates a flag that is up.
  // Errors of Segment::Create().
  static absl::StatusOr<std::unique_ptr<LoanFlag>> Create();

  // Returns the descriptor for LoanFlagView::Map() in the reader.
  const SharedDescriptor& descriptor() const { return segment_->descriptor(); }
  // Clears the flag: from now on no reader may trust the lent memory. Call it before writing there.
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
  // Errors of MappedSegment::Map().
  static absl::StatusOr<std::unique_ptr<LoanFlagView>> Map(Descriptor descriptor);

  // Returns true if all that this thread has read of the loan so far was read while it was still lent.
  bool StillLent() const;

 private:
  explicit LoanFlagView(std::unique_ptr<MappedSegment> segment) : segment_(std::move(segment)) {}

  const std::unique_ptr<MappedSegment> segment_;
};

}  // namespace slackline::shm
