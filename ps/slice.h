// The weights of one shard, in chunks that are copied on write: a view costs no copy and never stops an update.
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
#include "ps/chunk_pool.h"

namespace slackline::ps {

struct SliceShape {
  uint64_t elements = 0;
  // Elements a chunk; the last chunk may have fewer.
  uint64_t chunk_elements = 0;
};

// Where a slice's chunks lie.
struct SliceStorage {
  // They lie here as far as it has room, further ones and all without a segment on the heap. No other slice may use
  // it; views share it.
  std::shared_ptr<shm::Segment> segment = nullptr;
  // Buffers of so many superseded versions are kept for reuse when nobody holds them. As many as are held at a time
  // in the steady state: in a segment, taking memory from the system anew costs seven times the step.
  size_t versions_kept = 1;
};

// References to all chunks of a slice as they were when it was taken: one version, never a mixture.
//
// Thread-safety: const calls are safe; copies may be read and destroyed on any thread.
// Ownership:     keeps its chunks alive, also after the slice is gone. Copying a view copies one pointer.
class SliceView {
 public:
  // An empty view.
  SliceView() = default;
  SliceView(const SliceShape& shape, std::vector<ChunkRef> chunks)
      : shape_(shape), chunks_(std::make_shared<const std::vector<ChunkRef>>(std::move(chunks))) {}

  uint64_t elements() const { return shape_.elements; }
  uint64_t chunk_elements() const { return shape_.chunk_elements; }
  size_t chunks() const {
    if (chunks_ == nullptr) return 0;
    return shape_.elements / shape_.chunk_elements + (shape_.elements % shape_.chunk_elements != 0);
  }

  // Values of chunk `index`; its first element is element index x chunk_elements() of the slice.
  absl::Span<const float> chunk(size_t index) const {
    const uint64_t begin = index * shape_.chunk_elements;
    const uint64_t left = shape_.elements - begin;
    return {(*chunks_)[index].values(), left < shape_.chunk_elements ? left : shape_.chunk_elements};
  }
  // Bytes from the beginning of the slice's segment to chunk `index`; none when it does not lie there. Processes that
  // map the segment may read it as long as this view, or a reference, is held for them.
  std::optional<uint64_t> chunk_offset(size_t index) const { return (*chunks_)[index].segment_offset(); }
  // Keeps chunk `index` alive by itself, so that a sender can let go of a view piece by piece.
  ChunkRef reference(size_t index) const { return (*chunks_)[index]; }

  // The same version without the elements from there on. Requires: elements <= this->elements().
  SliceView First(uint64_t elements) const;

  // Requires: out.size() == elements().
  void CopyTo(absl::Span<float> out) const;

 private:
  SliceShape shape_;
  // Shared, so that copying a view does not touch the count of every chunk.
  std::shared_ptr<const std::vector<ChunkRef>> chunks_;
};

// Owns one contiguous range of the model and is the only code that changes it.
//
// Thread-safety: View() and Update() belong to one thread (the shard's sequencer); views to any.
// Units:         elements (float32).
// Invariant:     a chunk that a view holds is never written.
class Slice {
 public:
  // Update() hands out at most this many elements at a time. Small, so that the copy and the change of a block
  // overlap with the loading of the next: 512 makes a copy-on-write step 1.3 times faster than 4096.
  static constexpr size_t kBlockElements = 512;

  // All values are 0. Requires: chunk_elements > 0.
  explicit Slice(const SliceShape& shape, SliceStorage storage = {});

  // Bytes of a segment in which so many versions, each with chunks of its own, find room. 0 for no elements.
  static uint64_t SegmentBytes(const SliceShape& shape, size_t versions_max);

  uint64_t elements() const { return shape_.elements; }
  SliceView View() const { return SliceView(shape_, chunks_); }

  // Calls change(begin, values) for each block from front to back; `values` are those of elements begin,
  // begin + 1, ..., to be changed in place. Chunks that nobody else holds are written where they are, the others
  // into fresh buffers: block by block, so that memory is passed over once.
  void Update(absl::FunctionRef<void(uint64_t begin, absl::Span<float> values)> change) {
    UpdateFirst(elements(), change);
  }
  // The same for the first elements only; chunks behind them stay what they are.
  // Requires: elements <= this->elements().
  void UpdateFirst(uint64_t elements, absl::FunctionRef<void(uint64_t begin, absl::Span<float> values)> change);

  // Chunks that had to be written into fresh buffers, since the beginning.
  uint64_t chunks_copied() const { return chunks_copied_; }

 private:
  friend class SliceWriter;

  const SliceShape shape_;
  // Shared with the chunks that views keep alive after the slice is gone.
  const std::shared_ptr<ChunkPool> pool_;
  std::vector<ChunkRef> chunks_;
  uint64_t chunks_copied_ = 0;
};

// One walk over a slice, from front to back, that changes all of it. Chunks that nobody else holds are written where
// they are, the others into fresh buffers: piece by piece, so that memory is passed over once. Several slices of one
// shape can be walked over side by side.
//
// Thread-safety: none; as Slice::Update().
// Ownership:     borrows the slice, which is used by nothing else until the walk has ended.
class SliceWriter {
 public:
  explicit SliceWriter(Slice& slice) : slice_(&slice) {}
  SliceWriter(SliceWriter&&) = default;
  SliceWriter& operator=(SliceWriter&&) = delete;
  ~SliceWriter();

  // The values of the next elements, to be changed in place.
  // Requires: 0 < elements, so many are left, and they lie in one chunk.
  float* Next(size_t elements);
  // Leaves what is left of the chunk that it stands in as it is; nothing where it stands between chunks.
  void SkipRestOfChunk();
  // Elements of the chunk it stands in, or at; 0 at the end.
  uint64_t left_in_chunk() const;

 private:
  uint64_t ChunkElements() const;

  Slice* slice_;
  size_t chunk_ = 0;
  uint64_t written_ = 0;  // of the chunk
  ChunkRef target_;       // where the chunk goes that it stands in
  bool in_place_ = true;
};

}  // namespace slackline::ps
