// Memory that processes of one machine share: one process writes, the others read.
//
// A segment has no name in any file system. It lives as long as a process holds its descriptor or maps it, so it
// disappears with its processes, however they end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/shm/descriptor.h"

namespace slackline::shm {

// Returns the bytes of a page of this machine.
uint64_t PageBytes();
uint64_t RoundUpToPages(uint64_t bytes);

struct SegmentOptions {
  // Name shown in /proc/PID/maps; need not be unique. At most 249 bytes.
  std::string name;
  // Size, rounded up to pages. A page takes memory when it is first touched.
  uint64_t bytes = 0;
  // True to ask the system for huge pages. If the system refuses, nothing changes. If it agrees, memory is taken and
  // given back 2 MiB at a time.
  bool huge_pages = false;
};

struct ByteRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// The writer's side.
//
// Thread-safety: const calls and Release() of distinct ranges are safe; the caller must order access to the content.
// Ownership:     owns the mapping and one descriptor.
// Invariant:     the size never changes, so that no reader can touch a page that does not exist.
class Segment {
 public:
  // Creates a segment whose bytes are all 0.
  //   kInvalidArgument    `bytes` is 0, or the name is too long
  //   kResourceExhausted  no memory or no descriptor is left
  static absl::StatusOr<std::unique_ptr<Segment>> Create(const SegmentOptions& options);
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  // Returns the memory that the segment takes now.
  uint64_t resident_bytes() const;

  // Returns the descriptor for MappedSegment::Map() in another process. It is read-only, so a reader cannot write by
  // mistake. A copy of the shared pointer keeps it
  // open while it is sent.
  const SharedDescriptor& descriptor() const { return descriptor_; }

  // Gives the pages that lie wholly inside `range` back to the system. They then read as 0, here and in every reader.
  // If the system refuses, the memory stays taken.
  // Requires: the range lies in the segment, and its content is no longer needed.
  void Release(const ByteRange& range);

 private:
  Segment(std::byte* data, uint64_t bytes, SharedDescriptor descriptor)
      : data_(data), bytes_(bytes), descriptor_(std::move(descriptor)) {}

  std::byte* const data_;
  const uint64_t bytes_;
  const SharedDescriptor descriptor_;
};

struct SegmentSizeLimits {
  uint64_t bytes_min = 0;
  uint64_t bytes_max = 0;
};

// A reader's side: a segment of another process, which need not be trusted.
//
// Thread-safety: safe.
// Ownership:     owns the mapping, which keeps the memory alive after the writer is gone.
class MappedSegment {
 public:
  // Maps a descriptor that came from a peer. No later action of the peer can make a read of bytes() bytes fail; pages
  // that it has released read as 0.
  //   kInvalidArgument    the descriptor is no segment, can shrink, or has a size outside the limits
  //   kResourceExhausted  no memory is left to map it
  static absl::StatusOr<std::unique_ptr<MappedSegment>> Map(Descriptor descriptor, const SegmentSizeLimits& limits);
  MappedSegment(const MappedSegment&) = delete;
  MappedSegment& operator=(const MappedSegment&) = delete;
  ~MappedSegment();

  const std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  MappedSegment(const std::byte* data, uint64_t bytes) : data_(data), bytes_(bytes) {}

  const std::byte* const data_;
  const uint64_t bytes_;
};

}  // namespace slackline::shm
