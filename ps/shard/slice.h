// Weights of one shard, in chunks that are copied on write: a view costs no copy and never stops an update.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/shm/segment.h"
#include "ps/shard/chunk_pool.h"

namespace slackline::ps {

struct SliceShape {
  uint64_t elements = 0;
  // Number of elements per chunk; the last chunk may have fewer.
  uint64_t chunk_elements = 0;
};

// Memory for a slice's chunks.
struct SliceStorage {
  // Segment in which chunks lie as far as it has room; further chunks lie on the heap. Null: all lie on the heap. No
  // other slice may use the segment; views share it.
  std::shared_ptr<shm::Segment> segment = nullptr;
  // Number of superseded versions whose buffers are kept for reuse when nobody holds them. Use the number of versions
  // held at a time in the steady state: in a segment, taking memory from the system anew costs seven times the step.
  size_t versions_kept = 1;
};

// References to all chunks of a slice as they were when the view was taken: one version, never a mixture.
//
// Thread-safety: const calls are safe; copies may be read and destroyed on any thread.
// Ownership:     keeps its chunks alive, also after the slice is gone. Copying a view copies one pointer.
class SliceView {
 public:
  // Makes an empty view.
  SliceView() = default;
  SliceView(const SliceShape& shape, std::vector<ChunkRef> chunks)
      : shape_(shape), chunks_(std::make_shared<const std::vector<ChunkRef>>(std::move(chunks))) {}

  uint64_t elements() const { return shape_.elements; }
  uint64_t chunk_elements() const { return shape_.chunk_elements; }
  size_t chunks() const {
    if (chunks_ == nullptr) return 0;
    return shape_.elements / shape_.chunk_elements + (shape_.elements % shape_.chunk_elements != 0);
  }

  // Returns the values of chunk `index`. The first is element index x chunk_elements() of the slice.
  absl::Span<const float> chunk(size_t index) const {
    const uint64_t begin = index * shape_.chunk_elements;
    const uint64_t left = shape_.elements - begin;
    return {(*chunks_)[index].values(), left < shape_.chunk_elements ? left : shape_.chunk_elements};
  }
  // Returns the bytes from the beginning of the slice's segment to chunk `index`; none if the chunk does not lie there.
  // Processes that map the segment may read the chunk as long as this view, or a reference, is held for them.
  std::optional<uint64_t> chunk_offset(size_t index) const { return (*chunks_)[index].segment_offset(); }
  // Returns a reference that keeps chunk `index` alive by itself, so that a sender can release a view piece by piece.
  ChunkRef reference(size_t index) const { return (*chunks_)[index]; }

  // Returns the first `elements` elements of the same version. Requires: elements <= this->elements().
  SliceView First(uint64_t elements) const;

  // Requires: out.size() == elements().
  void CopyTo(absl::Span<float> out) const;

 private:
  SliceShape shape_;
  // Shared so that copying a view does not touch the count of every chunk.
  std::shared_ptr<const std::vector<ChunkRef>> chunks_;
};

// Owns one contiguous range of the model and is the only code that changes it.
//
// Thread-safety: View() and Update() belong to one thread (the shard's sequencer); views to any.
// Units:         elements (float32).
// Invariant:     a chunk that a view holds is never written.
class Slice {
 public:
  // Largest number of elements that Update() hands out at a time. Blocks are small so that copying and changing a block
  // overlap with loading the next: 512 makes a copy-on-write step 1.3 times faster than 4096.
  static constexpr size_t kBlockElements = 512;

  // Makes a slice in which all values are 0. Requires: chunk_elements > 0.
  explicit Slice(const SliceShape& shape, SliceStorage storage = {});

  // Returns the bytes of a segment with room for `versions_max` versions that each have their own chunks. 0 for no
  // elements.
  static uint64_t SegmentBytes(const SliceShape& shape, size_t versions_max);

  uint64_t elements() const { return shape_.elements; }
  SliceView View() const { return SliceView(shape_, chunks_); }

  // Calls change(begin, values) for each block from front to back; `values` are those of elements begin, begin + 1,
  // ..., to be changed in place. Chunks that nobody else holds are written where they are; the others are written into
  // fresh buffers, block by block, so that memory is passed over once.
  void Update(absl::FunctionRef<void(uint64_t begin, absl::Span<float> values)> change) {
    UpdateFirst(elements(), change);
  }
  // Updates the first `elements` elements in the same way; chunks behind them stay as they are.
  // Requires: elements <= this->elements().
  void UpdateFirst(uint64_t elements, absl::FunctionRef<void(uint64_t begin, absl::Span<float> values)> change);

  // Number of chunks that had to be written into fresh buffers since the slice was made.
  uint64_t chunks_copied() const { return chunks_copied_; }

 private:
  friend class SliceWriter;

  const SliceShape shape_;
  // Shared with the chunks that views keep alive after the slice is gone.
  const std::shared_ptr<ChunkPool> pool_;
  std::vector<ChunkRef> chunks_;
  uint64_t chunks_copied_ = 0;
};

// Walks over a slice once, from front to back, and changes all of it. Chunks that nobody else holds are written where
// they are; the others are written into fresh buffers, piece by piece, so that memory is passed over once. A caller can
// walk over several slices of one shape side by side.
//
// Thread-safety: none; as Slice::Update().
// Ownership:     borrows the slice; nothing else may use it until the walk has ended.
class SliceWriter {
 public:
  explicit SliceWriter(Slice& slice) : slice_(&slice) {}
  SliceWriter(SliceWriter&&) = default;
  SliceWriter& operator=(SliceWriter&&) = delete;
  ~SliceWriter();

  // Returns the values of the next `elements` elements, to be changed in place.
  // Requires: 0 < elements, so many are left, and they lie in one chunk.
  float* Next(size_t elements);
  // Leaves the rest of the current chunk as it is. Does nothing if the walk is between chunks.
  void SkipRestOfChunk();
  // Returns the number of elements left in the current chunk or, between chunks, in the next; 0 at the end.
  uint64_t left_in_chunk() const;

 private:
  uint64_t ChunkElements() const;
  // Copies the current chunk's elements before `end`, and perhaps some after it, to target_.
  void CopyUntil(uint64_t end);

  Slice* slice_;
  size_t chunk_ = 0;
  uint64_t written_ = 0;  // elements of the current chunk
  uint64_t copied_ = 0;   // of them and those after them, in target_; unused in place
  ChunkRef target_;       // new place of the current chunk
  bool in_place_ = true;
};

}  // namespace slackline::ps
