#include "worker/model/safetensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace slackline::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

constexpr size_t kAlignment = 8;

absl::Status FileError(absl::string_view doing, const std::string& path) {
  return absl::UnavailableError(absl::StrCat("cannot ", doing, " ", path, ": ", std::strerror(errno)));
}

absl::Status CheckCover(const std::vector<TensorInfo>& tensors, size_t elements) {
  uint64_t end = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.offset != end) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", tensor.name, " begins at element ", tensor.offset, ", the one before ends at ", end));
    }
    end += tensor.elements();
  }
  if (end == elements) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tensors of ", end, " elements describe ", elements, " values"));
}

// The integers that PyTorch's batch normalisation keeps, one a layer.
std::vector<std::string> BatchCounters(const std::vector<TensorInfo>& tensors) {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : tensors) {
    absl::string_view layer = tensor.name;
    if (absl::ConsumeSuffix(&layer, ".running_mean")) names.push_back(absl::StrCat(layer, ".num_batches_tracked"));
  }
  return names;
}

// Counters come first, so that these 8-byte values are aligned whatever the number of floats.
std::string Header(const std::vector<TensorInfo>& tensors, const std::vector<std::string>& counters,
                   const std::map<std::string, std::string>& metadata) {
  nlohmann::json header;
  uint64_t begin = 0;
  const auto add = [&](const std::string& name, const char* dtype, const std::vector<uint64_t>& shape, uint64_t bytes) {
    header[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, begin + bytes}}};
    begin += bytes;
  };
  for (const std::string& name : counters) add(name, "I64", {}, sizeof(int64_t));
  for (const TensorInfo& tensor : tensors) add(tensor.name, "F32", tensor.shape, tensor.elements() * sizeof(float));
  std::map<std::string, std::string> notes = metadata;
  notes["format"] = "pt";
  header["__metadata__"] = notes;
  std::string text = header.dump();
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  return text;
}

// A file that appears under its name only when all of it is on the disk.
class DurableFile {
 public:
  explicit DurableFile(const std::string& path) : path_(path), temporary_(path + ".tmp") {}
  ~DurableFile() {
    if (descriptor_ < 0) return;
    close(descriptor_);
    unlink(temporary_.c_str());
  }

  absl::Status Open() {
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    return descriptor_ < 0 ? FileError("create", temporary_) : absl::OkStatus();
  }
  absl::Status Write(const void* data, size_t size) {
    const char* at = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = write(descriptor_, at, size);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return FileError("write", temporary_);
      at += written;
      size -= static_cast<size_t>(written);
    }
    return absl::OkStatus();
  }
  absl::Status Commit() {
    if (fsync(descriptor_) != 0) return FileError("sync", temporary_);
    if (rename(temporary_.c_str(), path_.c_str()) != 0) return FileError("rename to", path_);
    close(descriptor_);
    descriptor_ = -1;
    return SyncFolder();
  }

 private:
  // The name, too, must survive a crash.
  absl::Status SyncFolder() const {
    const size_t slash = path_.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return FileError("open", folder);
    const bool synced = fsync(descriptor) == 0;
    const absl::Status status = synced ? absl::OkStatus() : FileError("sync", folder);
    close(descriptor);
    return status;
  }

  const std::string path_;
  const std::string temporary_;
  int descriptor_ = -1;
};

}  // namespace

absl::Status WriteSafetensors(const std::string& path, const std::vector<TensorInfo>& tensors,
                              absl::Span<const float> flat, const std::map<std::string, std::string>& metadata) {
  if (absl::Status status = CheckCover(tensors, flat.size()); !status.ok()) return status;
  const std::vector<std::string> counters = BatchCounters(tensors);
  const std::string header = Header(tensors, counters, metadata);
  const uint64_t header_bytes = header.size();
  const std::vector<int64_t> zeros(counters.size());

  DurableFile file(path);
  absl::Status status = file.Open();
  if (status.ok()) status = file.Write(&header_bytes, sizeof(header_bytes));
  if (status.ok()) status = file.Write(header.data(), header.size());
  if (status.ok()) status = file.Write(zeros.data(), zeros.size() * sizeof(int64_t));
  if (status.ok()) status = file.Write(flat.data(), flat.size() * sizeof(float));
  if (status.ok()) status = file.Commit();
  return status;
}

}  // namespace slackline::worker
