// BatchMemory: host memory for the images of batches, and vectors in it.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace slackline::images {

// BatchMemory replaces ordinary memory for batches, for example by pinned memory.
//
// Thread-safety: safe; several threads make batches.
class BatchMemory {
 public:
  virtual ~BatchMemory() = default;

  // Allocates memory, aligned to kBatchAlignment and not initialised.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* memory) = 0;
};

// Size of a cache line, to which LibTorch aligns its own memory.
inline constexpr size_t kBatchAlignment = 64;

// BatchAllocator allocates vectors in a BatchMemory, which outlives them; null: ordinary memory. New elements are
// uninitialised unless a value is given.
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

// Resizes `floats`; their values are undefined afterwards. Reuses the memory if it is large enough. Otherwise frees it
// first and allocates exactly the needed size: growth by halves would pin memory for nothing.
inline void RemakeFloats(BatchFloats& floats, size_t size) {
  if (floats.capacity() < size) {
    floats = BatchFloats(floats.get_allocator());
    floats.reserve(size);
  }
  floats.resize(size);
}

}  // namespace slackline::images
