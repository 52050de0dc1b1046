#include "worker/model/weights/safetensors.h"

#include <bit>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/storage/durable_file.h"
#include "common/text/json_text.h"

namespace slackline::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

constexpr size_t kAlignment = 8;

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
  std::string text = DumpJson(header);
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  return text;
}

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
