#include "common/checkpoint/shard_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>

#include <google/protobuf/util/json_util.h>
#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/optimizer/averaged_weights.h"
#include "common/text/json_text.h"

namespace slackline::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

constexpr size_t kAlignment = 8;
constexpr size_t kLengthBytes = 8;
// What safetensors itself allows.
constexpr uint64_t kHeaderBytesMax = 100'000'000;
constexpr char kKey[] = "slackline";

uint64_t BlocksOf(uint64_t elements, uint64_t block_elements) {
  return (elements + block_elements - 1) / block_elements;
}

std::string HeaderText(const ShardHeader& header) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string own;
  SLACKLINE_CHECK(google::protobuf::util::MessageToJsonString(header, &own, options).ok());
  nlohmann::json text;
  uint64_t begin = 0;
  for (const Array& array : header.arrays()) {
    const uint64_t end = begin + array.elements() * sizeof(float);
    text[array.name()] = {{"dtype", "F32"}, {"shape", {array.elements()}}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  text["__metadata__"] = {{"format", "pt"}, {kKey, own}};
  return DumpJson(text);
}

// Room for the header whatever the checksums will be.
uint64_t HeaderBytes(ShardHeader header) {
  for (Array& array : *header.mutable_arrays()) {
    array.clear_checksums();
    const uint64_t blocks = BlocksOf(array.elements(), header.block_elements());
    for (uint64_t i = 0; i < blocks; ++i) array.add_checksums(std::numeric_limits<uint64_t>::max());
  }
  return (HeaderText(header).size() + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

uint64_t ChecksumOf(absl::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string ShardFileName(uint32_t shard) { return absl::StrFormat("shard-%05d.safetensors", shard); }

// --- Writing ----------------------------------------------------------------------------------------------------

ShardFileWriter::ShardFileWriter(const std::string& folder, ShardHeader header)
    : header_(std::move(header)),
      file_(absl::StrCat(folder, "/", ShardFileName(header_.shard()))),
      hash_(XXH3_createState(), [](XXH3_state_t* state) { XXH3_freeState(state); }) {
  header_.set_format(kShardFormat);
  if (header_.block_elements() == 0) header_.set_block_elements(kBlockElements);
  for (Array& array : *header_.mutable_arrays()) array.clear_checksums();
}

ShardFileWriter::~ShardFileWriter() = default;

absl::StatusOr<std::unique_ptr<ShardFileWriter>> ShardFileWriter::Create(const std::string& folder,
                                                                         ShardHeader header) {
  std::unique_ptr<ShardFileWriter> writer(new ShardFileWriter(folder, std::move(header)));
  if (absl::Status status = writer->Begin(); !status.ok()) return status;
  return writer;
}

absl::Status ShardFileWriter::Begin() {
  XXH3_64bits_reset(hash_.get());
  if (absl::Status status = file_.Open(); !status.ok()) return status;
  header_bytes_ = HeaderBytes(header_);
  // The header comes last, with the checksums.
  const std::string room(kLengthBytes + header_bytes_, ' ');
  return file_.Write(room.data(), room.size());
}

void ShardFileWriter::EndBlock() {
  header_.mutable_arrays(array_)->add_checksums(XXH3_64bits_digest(hash_.get()));
  XXH3_64bits_reset(hash_.get());
}

absl::Status ShardFileWriter::Append(absl::Span<const float> values) {
  if (values.empty()) return absl::OkStatus();
  while (array_ < header_.arrays_size() && header_.arrays(array_).elements() == in_array_) {
    ++array_;
    in_array_ = 0;
  }
  SLACKLINE_CHECK(array_ < header_.arrays_size());
  const uint64_t elements = header_.arrays(array_).elements();
  SLACKLINE_CHECK(values.size() <= elements - in_array_);
  if (absl::Status status = file_.Write(values.data(), values.size() * sizeof(float)); !status.ok()) return status;
  while (!values.empty()) {
    const uint64_t left = header_.block_elements() - in_array_ % header_.block_elements();
    const absl::Span<const float> part = values.first(std::min<uint64_t>(values.size(), left));
    XXH3_64bits_update(hash_.get(), part.data(), part.size() * sizeof(float));
    in_array_ += part.size();
    values.remove_prefix(part.size());
    if (part.size() == left || in_array_ == elements) EndBlock();
  }
  return absl::OkStatus();
}

absl::StatusOr<wire::CheckpointFile> ShardFileWriter::Finish() {
  uint64_t bytes = kLengthBytes + header_bytes_;
  for (const Array& array : header_.arrays()) {
    const uint64_t blocks = BlocksOf(array.elements(), header_.block_elements());
    SLACKLINE_CHECK(static_cast<uint64_t>(array.checksums_size()) == blocks);
    bytes += array.elements() * sizeof(float);
  }
  std::string text = HeaderText(header_);
  SLACKLINE_CHECK(text.size() <= header_bytes_);
  text.append(header_bytes_ - text.size(), ' ');
  absl::Status status = file_.WriteAt(0, &header_bytes_, kLengthBytes);
  if (status.ok()) status = file_.WriteAt(kLengthBytes, text.data(), text.size());
  if (status.ok()) status = file_.Commit();
  if (!status.ok()) return status;
  wire::CheckpointFile file;
  file.set_shard(header_.shard());
  file.set_file(ShardFileName(header_.shard()));
  file.set_bytes(bytes);
  file.set_header_checksum(ChecksumOf(text));
  file.set_begin(header_.begin());
  file.set_end(header_.end());
  file.set_lineage(header_.lineage());
  file.set_version(header_.version());
  return file;
}

// --- Reading ----------------------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<ShardFileReader>> ShardFileReader::Open(const std::string& folder,
                                                                       const wire::CheckpointFile& file) {
  const std::string path = absl::StrCat(folder, "/", file.file());
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    const std::string message = absl::StrCat("cannot open ", path, ": ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
  }
  std::unique_ptr<ShardFileReader> reader(new ShardFileReader(path, descriptor));
  if (absl::Status status = reader->ReadHeader(file); !status.ok()) return status;
  return reader;
}

ShardFileReader::~ShardFileReader() { ::close(descriptor_); }

absl::Status ShardFileReader::ReadBytes(uint64_t offset, void* out, size_t size) const {
  char* at = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got = ::pread(descriptor_, at, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::UnavailableError(absl::StrCat("cannot read ", path_, ": ", std::strerror(errno)));
    if (got == 0) return absl::DataLossError(absl::StrCat(path_, " ends at byte ", offset));
    at += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status ShardFileReader::ReadHeader(const wire::CheckpointFile& file) {
  struct stat found = {};
  if (::fstat(descriptor_, &found) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot read ", path_, ": ", std::strerror(errno)));
  }
  if (static_cast<uint64_t>(found.st_size) != file.bytes()) {
    return absl::DataLossError(absl::StrCat(path_, " has ", found.st_size, " bytes; it had ", file.bytes()));
  }
  uint64_t bytes = 0;
  if (absl::Status status = ReadBytes(0, &bytes, kLengthBytes); !status.ok()) return status;
  if (bytes > std::min(kHeaderBytesMax, file.bytes() - kLengthBytes)) {
    return absl::DataLossError(absl::StrCat(path_, " claims a header of ", bytes, " bytes"));
  }
  std::string text(bytes, ' ');
  if (absl::Status status = ReadBytes(kLengthBytes, text.data(), text.size()); !status.ok()) return status;
  if (ChecksumOf(text) != file.header_checksum()) {
    return absl::DataLossError(absl::StrCat(path_, ": the header's checksum is wrong"));
  }
  const nlohmann::json parsed = ParseJson(text);
  const auto metadata = parsed.is_object() ? parsed.find("__metadata__") : parsed.end();
  const bool known =
      metadata != parsed.end() && metadata->is_object() && metadata->contains(kKey) && (*metadata)[kKey].is_string();
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  if (!known ||
      !google::protobuf::util::JsonStringToMessage((*metadata)[kKey].get<std::string>(), &header_, options).ok()) {
    return absl::DataLossError(absl::StrCat(path_, " is no part of a checkpoint"));
  }
  data_ = kLengthBytes + bytes;
  return CheckHeader(file);
}

absl::Status ShardFileReader::CheckHeader(const wire::CheckpointFile& file) const {
  const auto broken = [&](absl::string_view what) {
    return absl::DataLossError(
        absl::StrCat(path_, ": ", what, "; format ", header_.format(), ", known is ", kShardFormat));
  };
  if (header_.format() != kShardFormat) return broken("another format");
  if (header_.begin() != file.begin() || header_.end() != file.end() || header_.begin() > header_.end()) {
    return broken("another shard");
  }
  const uint64_t size = header_.end() - header_.begin();
  if (header_.trained() > size || header_.block_elements() == 0 || header_.arrays_size() == 0) {
    return broken("lengths that contradict each other");
  }
  uint64_t left = (file.bytes() - data_) / sizeof(float);
  for (int i = 0; i < header_.arrays_size(); ++i) {
    const Array& array = header_.arrays(i);
    const bool right =
        array.elements() == (i == 0 || array.name() == kAveragedWeights ? size : header_.trained()) &&
        array.elements() <= left &&
        static_cast<uint64_t>(array.checksums_size()) == BlocksOf(array.elements(), header_.block_elements());
    if (!right) return broken(absl::StrCat("lengths of ", array.name(), " that contradict each other"));
    left -= array.elements();
  }
  return left == 0 ? absl::OkStatus() : broken("bytes behind the arrays");
}

absl::Status ShardFileReader::Load(int array, int block) {
  if (loaded_ == std::pair(array, block)) return absl::OkStatus();
  loaded_.reset();
  uint64_t offset = data_;
  for (int i = 0; i < array; ++i) offset += header_.arrays(i).elements() * sizeof(float);
  const uint64_t first = static_cast<uint64_t>(block) * header_.block_elements();
  block_.resize(std::min(header_.block_elements(), header_.arrays(array).elements() - first));
  const size_t bytes = block_.size() * sizeof(float);
  if (absl::Status status = ReadBytes(offset + first * sizeof(float), block_.data(), bytes); !status.ok()) {
    return status;
  }
  if (XXH3_64bits(block_.data(), bytes) != header_.arrays(array).checksums(block)) {
    return absl::DataLossError(
        absl::StrCat(path_, ": the checksum of block ", block, " of ", header_.arrays(array).name(), " is wrong"));
  }
  loaded_ = {array, block};
  return absl::OkStatus();
}

absl::Status ShardFileReader::Read(int array, uint64_t begin, absl::Span<float> out) {
  SLACKLINE_CHECK(array >= 0 && array < header_.arrays_size());
  SLACKLINE_CHECK(out.size() <= header_.arrays(array).elements() &&
                  begin <= header_.arrays(array).elements() - out.size());
  while (!out.empty()) {
    const uint64_t block = begin / header_.block_elements(), offset = begin % header_.block_elements();
    if (absl::Status status = Load(array, static_cast<int>(block)); !status.ok()) return status;
    const size_t count = std::min<uint64_t>(out.size(), block_.size() - offset);
    std::memcpy(out.data(), block_.data() + offset, count * sizeof(float));
    out.remove_prefix(count);
    begin += count;
  }
  return absl::OkStatus();
}

absl::Status ShardFileReader::Verify() {
  for (int array = 0; array < header_.arrays_size(); ++array) {
    for (int block = 0; block < header_.arrays(array).checksums_size(); ++block) {
      if (absl::Status status = Load(array, block); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace slackline::checkpoint
