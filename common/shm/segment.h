// Memory that processes of one machine share: one writes, the others read.
//
// A segment has no name in any file system. It lives as long as somebody holds its descriptor or maps it, so that it
// vanishes with its processes, however they end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/shm/descriptor.h"

namespace slackline::shm {

// Bytes of a page of this machine.
uint64_t PageBytes();
uint64_t RoundUpToPages(uint64_t bytes);

struct SegmentOptions {
  // Shown in /proc/PID/maps; need not be unique. At most 249 bytes.
  std::string name;
  // Rounded up to pages. A page takes memory when it is first touched.
  uint64_t bytes = 0;
  // Asks the system for huge pages. It may refuse, and then nothing changes; where it agrees, memory is taken and
  // given back 2 MiB at a time.
  bool huge_pages = false;
};

struct ByteRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// The writer's side.
//
// Thread-safety: const calls and Release() of distinct ranges are safe; the content is the caller's affair.
// Ownership:     owns the mapping and one descriptor.
// Invariant:     the size never changes, so that no reader can touch a page that is not there.
class Segment {
 public:
  // All bytes are 0.
  //   kInvalidArgument    no bytes, or a name that is too long
  //   kResourceExhausted  no memory or no descriptor is left
  static absl::StatusOr<std::unique_ptr<Segment>> Create(const SegmentOptions& options);
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  // Memory that it takes now.
  uint64_t resident_bytes() const;

  // For MappedSegment::Map() in another process. It is open for reading only: who gets it cannot write by mistake.
  // Sharing keeps it open while it is sent.
  const SharedDescriptor& descriptor() const { return descriptor_; }

  // Gives the pages that lie wholly inside `range` back to the system; they then read as 0, here and in every reader.
  // Where the system refuses, the memory stays taken.
  // Requires: the range lies in the segment, and nobody needs its content.
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

// A reader's side: a segment of another process, which need not be trusted to be right.
//
// Thread-safety: safe.
// Ownership:     owns the mapping, which keeps the memory alive after the writer is gone.
class MappedSegment {
 public:
  // Maps what came from a peer. Nothing that the peer does later can make a read of bytes() bytes fail; pages that it
  // has released read as 0.
  //   kInvalidArgument    not a segment, one that can shrink, or a size outside of the limits
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
