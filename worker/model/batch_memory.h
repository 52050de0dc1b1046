// Memory of the host that images of batches are in, and vectors in it.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace slackline::worker {

// Where batches are to have other memory than the program's.
//
// Thread-safety: safe; several threads make batches.
class BatchMemory {
 public:
  virtual ~BatchMemory() = default;

  // Aligned to kBatchAlignment, with any values.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* memory) = 0;
};

// A cache line, as LibTorch has its own memory.
inline constexpr size_t kBatchAlignment = 64;

// Of vectors in a BatchMemory, which outlives them; null: the program's memory. New elements have any value, unless one
// is given.
template <typename T>
class BatchAllocator {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  BatchAllocator() = default;
  explicit BatchAllocator(BatchMemory* memory) : memory_(memory) {}
  template <typename U>
  BatchAllocator(const BatchAllocator<U>& other) : memory_(other.memory()) {}

  T* allocate(size_t count) {
    const size_t bytes = count * sizeof(T);
    return static_cast<T*>(memory_ != nullptr ? memory_->Allocate(bytes)
                                              : ::operator new (bytes, std::align_val_t{kBatchAlignment}));
  }
  void deallocate(T* memory, size_t /*count*/) {
    if (memory_ != nullptr) return memory_->Free(memory);
    ::operator delete (memory, std::align_val_t{kBatchAlignment});
  }
  template <typename U>
  void construct(U* place) {
    ::new (static_cast<void*>(place)) U;
  }
  template <typename U, typename... Values>
  void construct(U* place, Values&&... values) {
    ::new (static_cast<void*>(place)) U(std::forward<Values>(values)...);
  }

  BatchMemory* memory() const { return memory_; }
  friend bool operator==(const BatchAllocator& a, const BatchAllocator& b) { return a.memory_ == b.memory_; }

 private:
  BatchMemory* memory_ = nullptr;
};

using BatchFloats = std::vector<float, BatchAllocator<float>>;

// Makes `floats` as long, with any values. Memory is kept where it suffices; else what there was goes first, and there
// is no more than needed: growth by halves would be memory that is pinned for nothing.
inline void RemakeFloats(BatchFloats& floats, size_t size) {
  if (floats.capacity() < size) {
    floats = BatchFloats(floats.get_allocator());
    floats.reserve(size);
  }
  floats.resize(size);
}

}  // namespace slackline::worker
