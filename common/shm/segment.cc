#include "common/shm/segment.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace slackline::shm {
namespace {

// As the system counts them in st_blocks, whatever its block size.
constexpr uint64_t kStatBlockBytes = 512;

absl::Status CannotCreate(const SegmentOptions& options, absl::string_view step, int error) {
  const std::string what =
      absl::StrCat("cannot make the shared memory segment '", options.name, "' of ", options.bytes, " bytes: ", step);
  // Whatever the system lacks (memory, descriptors, address space), the caller may go on without a segment.
  const absl::Status status = absl::ErrnoToStatus(error, what);
  return error == EINVAL ? status : absl::ResourceExhaustedError(status.message());
}

// Another open file of the same memory, which can only be read. The alternative, F_SEAL_FUTURE_WRITE, would also
// forbid the writer to release pages.
Descriptor OpenForReading(const Descriptor& memory) {
  return Descriptor(::open(absl::StrCat("/proc/self/fd/", memory.get()).c_str(), O_RDONLY | O_CLOEXEC));
}

// What makes a segment safe to read: it lies in ordinary memory, and never gets shorter.
absl::Status CheckSealed(const Descriptor& descriptor) {
  struct statfs system {};
  if (::fstatfs(descriptor.get(), &system) != 0 || system.f_type != TMPFS_MAGIC) {
    return absl::InvalidArgumentError("the descriptor is not one of shared memory");
  }
  const int seals = ::fcntl(descriptor.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("the segment has the seals ", seals < 0 ? 0 : seals,
                                                   "; F_SEAL_SHRINK (", F_SEAL_SHRINK, ") must be among them"));
  }
  return absl::OkStatus();
}

absl::Status CannotMap(uint64_t bytes, int error) {
  const absl::Status status = absl::ErrnoToStatus(error, absl::StrCat("cannot map a segment of ", bytes, " bytes"));
  return error == ENOMEM ? status : absl::InvalidArgumentError(status.message());
}

}  // namespace

uint64_t PageBytes() {
  static const uint64_t bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

uint64_t RoundUpToPages(uint64_t bytes) {
  const uint64_t rest = bytes % PageBytes();
  return rest == 0 ? bytes : bytes + (PageBytes() - rest);
}

absl::StatusOr<std::unique_ptr<Segment>> Segment::Create(const SegmentOptions& options) {
  constexpr uint64_t kBytesMax = uint64_t{1} << 62;  // where rounding up cannot overflow
  if (options.bytes == 0 || options.bytes > kBytesMax) return CannotCreate(options, "its size", EINVAL);
  const Descriptor memory(::memfd_create(options.name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.valid()) return CannotCreate(options, "memfd_create", errno);

  const uint64_t bytes = RoundUpToPages(options.bytes);
  if (::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0) return CannotCreate(options, "its size", errno);
  // Readers cannot open it again for writing either.
  if (::fchmod(memory.get(), S_IRUSR) != 0) return CannotCreate(options, "its mode", errno);
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return CannotCreate(options, "its seals", errno);
  }
  auto descriptor = std::make_shared<const Descriptor>(OpenForReading(memory));
  if (!descriptor->valid()) return CannotCreate(options, "opening it for reading", errno);

  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (data == MAP_FAILED) return CannotCreate(options, "mapping it", errno);
  if (options.huge_pages) static_cast<void>(::madvise(data, bytes, MADV_HUGEPAGE));
  return std::unique_ptr<Segment>(new Segment(static_cast<std::byte*>(data), bytes, std::move(descriptor)));
}

Segment::~Segment() { ::munmap(data_, bytes_); }

uint64_t Segment::resident_bytes() const {
  struct stat file {};
  if (::fstat(descriptor_->get(), &file) != 0) return 0;
  return static_cast<uint64_t>(file.st_blocks) * kStatBlockBytes;
}

void Segment::Release(const ByteRange& range) {
  SLACKLINE_CHECK(range.offset <= bytes_ && range.bytes <= bytes_ - range.offset);
  const uint64_t begin = RoundUpToPages(range.offset);
  const uint64_t end = (range.offset + range.bytes) / PageBytes() * PageBytes();
  if (begin < end) static_cast<void>(::madvise(data_ + begin, end - begin, MADV_REMOVE));
}

absl::StatusOr<std::unique_ptr<MappedSegment>> MappedSegment::Map(Descriptor descriptor,
                                                                  const SegmentSizeLimits& limits) {
  SLACKLINE_CHECK(limits.bytes_min > 0);
  // Seals first: what is sealed keeps the size that is read after that.
  if (absl::Status status = CheckSealed(descriptor); !status.ok()) return status;
  struct stat file {};
  if (::fstat(descriptor.get(), &file) != 0) return absl::ErrnoToStatus(errno, "cannot see the segment's size");
  const auto bytes = static_cast<uint64_t>(file.st_size);
  if (bytes < limits.bytes_min || bytes > limits.bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("the segment has ", bytes, " bytes; allowed are ", limits.bytes_min, " to ", limits.bytes_max));
  }
  void* const data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor.get(), 0);
  if (data == MAP_FAILED) return CannotMap(bytes, errno);
  return std::unique_ptr<MappedSegment>(new MappedSegment(static_cast<const std::byte*>(data), bytes));
}

MappedSegment::~MappedSegment() { ::munmap(const_cast<std::byte*>(data_), bytes_); }

}  // namespace slackline::shm
