// Arrays of float32 that begin on a cache line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace slackline::ps {

inline constexpr size_t kCacheLineBytes = 64;

struct AlignedFloatsDeleter {
  void operator()(float* values) const { ::operator delete (values, std::align_val_t{kCacheLineBytes}); }
};
using AlignedFloats = std::unique_ptr<float[], AlignedFloatsDeleter>;

// Values are not set.
inline AlignedFloats AllocateAlignedFloats(uint64_t elements) {
  void* memory = ::operator new (elements * sizeof(float), std::align_val_t{kCacheLineBytes});
  return AlignedFloats(static_cast<float*>(memory));
}

}  // namespace slackline::ps
