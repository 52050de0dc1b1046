#include "worker/model/weights/load_weights.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/codec/kernels.h"
#include "common/text/json_text.h"
#include "images/base/mapped_file.h"
#include "worker/model/head_layout.h"

namespace slackline::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

// Bounds of what is read of a file, as the format's own library has the first.
constexpr uint64_t kHeaderBytesMax = 100'000'000;
constexpr size_t kSidesMax = 16;

struct StoredTensor {
  std::string type;
  std::vector<uint64_t> shape;
  absl::string_view bytes;
};

absl::Status BadFile(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("no safetensors: ", what));
}

// 0: a type that is not taken.
uint64_t BytesOf(const std::string& type) {
  if (type == "F32") return 4;
  return type == "F16" || type == "BF16" ? 2 : 0;
}

absl::StatusOr<StoredTensor> ReadEntry(const std::string& name, const nlohmann::json& entry, absl::string_view data) {
  const auto bad = [&] { return BadFile(absl::StrCat("the header's entry of ", name, " is not as it should be")); };
  const bool fields = entry.is_object() && entry.contains("dtype") && entry["dtype"].is_string() &&
                      entry.contains("shape") && entry["shape"].is_array() && entry["shape"].size() <= kSidesMax &&
                      entry.contains("data_offsets") && entry["data_offsets"].is_array() &&
                      entry["data_offsets"].size() == 2;
  if (!fields) return bad();
  for (const char* list : {"shape", "data_offsets"}) {
    for (const nlohmann::json& value : entry[list]) {
      if (!value.is_number_unsigned()) return bad();
    }
  }
  StoredTensor tensor{entry["dtype"].get<std::string>(), entry["shape"].get<std::vector<uint64_t>>(), {}};
  const uint64_t begin = entry["data_offsets"][0].get<uint64_t>();
  const uint64_t end = entry["data_offsets"][1].get<uint64_t>();
  if (begin > end || end > data.size()) {
    return BadFile(absl::StrCat(name, " is at bytes [", begin, ", ", end, ") of ", data.size()));
  }
  tensor.bytes = data.substr(begin, end - begin);
  return tensor;
}

absl::StatusOr<std::map<std::string, StoredTensor>> ReadHeader(absl::string_view bytes) {
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) return BadFile(absl::StrCat("it has ", bytes.size(), " bytes"));
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  bytes.remove_prefix(sizeof(header_bytes));
  if (header_bytes > bytes.size() || header_bytes > kHeaderBytesMax) {
    return BadFile(absl::StrCat("its header would have ", header_bytes, " bytes"));
  }
  const absl::string_view text = bytes.substr(0, header_bytes);
  const nlohmann::json header = ParseJson(text);
  if (!header.is_object()) return BadFile("its header is no JSON object");
  std::map<std::string, StoredTensor> tensors;
  for (const auto& item : header.items()) {
    if (item.key() == "__metadata__") continue;
    absl::StatusOr<StoredTensor> tensor = ReadEntry(item.key(), item.value(), bytes.substr(header_bytes));
    if (!tensor.ok()) return tensor.status();
    tensors.emplace(item.key(), *std::move(tensor));
  }
  return tensors;
}

std::string ShapeText(const std::vector<uint64_t>& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

std::string LayerOf(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

// The classifier is one of them: the layer of the last trained tensor, or of the last frozen one, which all lie behind.
std::vector<std::string> LastLayers(const std::vector<TensorInfo>& tensors) {
  std::string trained, frozen;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.trained) trained = LayerOf(tensor.name);
    if (tensor.frozen) frozen = LayerOf(tensor.name);
  }
  return {trained, frozen};
}

bool OtherClasses(const TensorInfo& wanted, const std::vector<uint64_t>& found) {
  return found.size() == wanted.shape.size() && !found.empty() && found[0] != wanted.shape[0] &&
         std::equal(found.begin() + 1, found.end(), wanted.shape.begin() + 1);
}

absl::Status CheckValues(const TensorInfo& wanted, const StoredTensor& found) {
  const uint64_t bytes = BytesOf(found.type);
  if (bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(wanted.name, ": found values of type ", found.type, "; allowed are F32, F16 and BF16"));
  }
  if (found.shape != wanted.shape) {
    return absl::InvalidArgumentError(absl::StrCat(wanted.name, ": found shape ", ShapeText(found.shape),
                                                   "; the model has ", ShapeText(wanted.shape)));
  }
  if (found.bytes.size() == wanted.elements() * bytes) return absl::OkStatus();
  return BadFile(absl::StrCat(wanted.name, " has ", found.bytes.size(), " bytes for ", wanted.elements(), " values of ",
                              found.type));
}

absl::Status Decode(const TensorInfo& wanted, const StoredTensor& found, float* out) {
  const size_t elements = wanted.elements();
  const auto* in = reinterpret_cast<const std::byte*>(found.bytes.data());
  bool finite = false;
  if (found.type == "F32") {
    finite = codec::AllFiniteFp32(elements, in);
    std::memcpy(out, in, elements * sizeof(float));
  } else if (found.type == "F16") {
    finite = codec::AllFiniteFp16(elements, in);
    codec::DecodeFp16(elements, in, out);
  } else {
    finite = codec::AllFiniteBf16(elements, in);
    codec::DecodeBf16(elements, in, out);
  }
  if (finite) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(wanted.name, ": found a value that is not finite"));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> TakeWeights(absl::string_view bytes, const std::vector<TensorInfo>& tensors,
                                                     absl::Span<float> flat) {
  absl::StatusOr<std::map<std::string, StoredTensor>> stored = ReadHeader(bytes);
  if (!stored.ok()) return stored.status();
  const std::vector<std::string> last = LastLayers(tensors);
  const auto in_last = [&last](const TensorInfo& info) {
    return std::find(last.begin(), last.end(), LayerOf(info.name)) != last.end();
  };
  const auto known = [&tensors](const std::string& name) {
    return std::any_of(tensors.begin(), tensors.end(), [&name](const TensorInfo& info) { return info.name == name; });
  };
  // Of a run without labels, for a model with a classifier: there is none, and the head in its place is passed over.
  const bool headed = std::any_of(stored->begin(), stored->end(), [&known](const auto& tensor) {
    return IsOfHead(tensor.first) && !known(tensor.first);
  });
  std::vector<std::string> kept;
  for (const TensorInfo& wanted : tensors) {
    const auto found = stored->find(wanted.name);
    if (found == stored->end() && headed && in_last(wanted)) {
      kept.push_back(wanted.name);
      continue;
    }
    if (found == stored->end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("found no ", wanted.name, "; the model has it, ", ShapeText(wanted.shape)));
    }
    if (in_last(wanted) && OtherClasses(wanted, found->second.shape)) {
      kept.push_back(wanted.name);
    } else if (absl::Status fits = CheckValues(wanted, found->second); !fits.ok()) {
      return fits;
    }
  }
  for (const TensorInfo& wanted : tensors) {
    if (kept.empty() || headed || LayerOf(wanted.name) != LayerOf(kept.front())) continue;
    const StoredTensor& first = stored->at(kept.front());
    const StoredTensor& found = stored->at(wanted.name);
    if (!found.shape.empty() && found.shape[0] == first.shape[0]) continue;
    return absl::InvalidArgumentError(absl::StrCat(wanted.name, ": found shape ", ShapeText(found.shape), ", and ",
                                                   ShapeText(first.shape), " of ", kept.front(),
                                                   "; allowed are as many classes in both"));
  }
  for (const auto& [name, tensor] : *stored) {
    if (absl::EndsWith(name, ".num_batches_tracked") || known(name) || (headed && IsOfHead(name))) continue;
    return absl::InvalidArgumentError(absl::StrCat("found ", name, ", which the model does not have"));
  }
  std::vector<float> taken(flat.begin(), flat.end());
  for (const TensorInfo& wanted : tensors) {
    if (std::find(kept.begin(), kept.end(), wanted.name) != kept.end()) continue;
    const absl::Status decoded = Decode(wanted, stored->at(wanted.name), taken.data() + wanted.offset);
    if (!decoded.ok()) return decoded;
  }
  std::copy(taken.begin(), taken.end(), flat.begin());
  return kept;
}

absl::StatusOr<std::vector<std::string>> LoadWeights(const std::string& path, const std::vector<TensorInfo>& tensors,
                                                     absl::Span<float> flat) {
  const absl::StatusOr<images::MappedFile> file = images::MappedFile::Open(path);
  if (!file.ok()) return file.status();
  absl::StatusOr<std::vector<std::string>> kept = TakeWeights(file->bytes(), tensors, flat);
  if (kept.ok()) return kept;
  return absl::Status(kept.status().code(), absl::StrCat(path, ": ", kept.status().message()));
}

}  // namespace slackline::worker
