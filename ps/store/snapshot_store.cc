#include "ps/store/snapshot_store.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/log/logging.h"
#include "ps/store/manifest.h"

namespace slackline::ps {
namespace {

constexpr char kManifests = 'm', kArrays = 'a';

void AppendNumber(uint64_t number, std::string& key) {
  for (int shift = 56; shift >= 0; shift -= 8) key.push_back(static_cast<char>(number >> shift));
}

uint64_t NumberIn(absl::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < sizeof(number); ++i) number = number << 8 | static_cast<unsigned char>(bytes[i]);
  return number;
}

std::string ManifestKey(uint64_t id) {
  std::string key(1, kManifests);
  AppendNumber(id, key);
  return key;
}

// Ascending as snapshots, arrays and blocks are. Array 0 is the weights.
std::string BlockKey(uint64_t id, uint64_t array, uint64_t block) {
  std::string key(1, kArrays);
  AppendNumber(id, key);
  AppendNumber(array, key);
  AppendNumber(block, key);
  return key;
}

std::string ArraysOf(uint64_t id) { return BlockKey(id, 0, 0); }

absl::string_view Bytes(absl::Span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// Reads the blocks of one snapshot as they are asked for, front to back.
class BlockReader {
 public:
  BlockReader(const Database& database, uint64_t id, uint64_t block_elements)
      : database_(database), id_(id), block_elements_(block_elements) {}

  // Elements from `begin` of a kept array (0: the weights) which has `elements` of them.
  absl::Status Read(uint64_t array, uint64_t elements, uint64_t begin, absl::Span<float> out) {
    while (!out.empty()) {
      const uint64_t block = begin / block_elements_, first = block * block_elements_;
      const uint64_t size = std::min(block_elements_, elements - first);
      if (absl::Status status = Load(array, block, size); !status.ok()) return status;
      const size_t count = std::min<uint64_t>(out.size(), first + size - begin);
      std::memcpy(out.data(), values_.data() + (begin - first) * sizeof(float), count * sizeof(float));
      out.remove_prefix(count);
      begin += count;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Load(uint64_t array, uint64_t block, uint64_t elements) {
    const std::pair<uint64_t, uint64_t> wanted(array, block);
    if (loaded_ == wanted) return absl::OkStatus();
    loaded_.reset();
    const absl::StatusOr<std::optional<std::string>> found = database_.Get(BlockKey(id_, array, block));
    if (!found.ok()) return found.status();
    const std::string name = absl::StrCat("block ", block, " of array ", array, " of snapshot ", id_);
    if (!*found) return absl::DataLossError(absl::StrCat(name, " is missing"));
    if ((*found)->size() != elements * sizeof(float)) {
      return absl::DataLossError(
          absl::StrCat(name, " has ", (*found)->size(), " bytes; it had ", elements * sizeof(float)));
    }
    values_ = **found;
    loaded_ = wanted;
    return absl::OkStatus();
  }

  const Database& database_;
  const uint64_t id_;
  const uint64_t block_elements_;
  std::optional<std::pair<uint64_t, uint64_t>> loaded_;
  std::string values_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SnapshotStore>> SnapshotStore::Open(const StoreOptions& options,
                                                                   const ShardIdentity& identity) {
  SLACKLINE_CHECK(options.keep > 0);
  absl::StatusOr<std::unique_ptr<Database>> database =
      options.open != nullptr ? options.open(options.folder) : Database::Open(options.folder, options.disk);
  if (!database.ok()) return database.status();
  std::unique_ptr<SnapshotStore> store(new SnapshotStore(options, identity, *std::move(database)));
  if (absl::Status status = store->LoadManifests(); !status.ok()) return status;
  if (absl::Status status = store->Trim(); !status.ok()) return status;
  if (absl::Status status = store->database_->Tidy(kManifests); !status.ok()) return status;
  return store;
}

SnapshotStore::SnapshotStore(const StoreOptions& options, const ShardIdentity& identity,
                             std::unique_ptr<Database> database)
    : options_(options), identity_(identity), database_(std::move(database)) {}

SnapshotStore::~SnapshotStore() = default;

absl::StatusOr<snapshot::Manifest> SnapshotStore::FindManifest(uint64_t id) const {
  const absl::StatusOr<std::optional<std::string>> found = database_->Get(ManifestKey(id));
  if (!found.ok()) return found.status();
  if (!*found) return absl::NotFoundError(absl::StrCat("there is no snapshot ", id));
  return ParseManifest(**found);
}

absl::StatusOr<snapshot::Manifest> SnapshotStore::ParseManifest(absl::string_view bytes) const {
  snapshot::Manifest manifest;
  if (!manifest.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::DataLossError("a snapshot whose manifest is no message");
  }
  if (absl::Status status = CheckManifest(identity_, manifest); !status.ok()) return status;
  return manifest;
}

absl::Status SnapshotStore::LoadManifests() {
  absl::Status foreign, broken;
  const absl::Status read = database_->ForEach(kManifests, [&](absl::string_view key, absl::string_view value) {
    if (key.size() != ManifestKey(0).size()) return;
    const absl::StatusOr<snapshot::Manifest> manifest = ParseManifest(value);
    const uint64_t id = NumberIn(key.substr(1));
    next_ = id + 1;
    if (manifest.ok()) {
      kept_.insert(kept_.begin(), ToKept(id, *manifest));
    } else if (absl::IsDataLoss(manifest.status())) {
      broken = manifest.status();
      log::Error("shard ", identity_.shard.value(), ": the manifest of snapshot ", id,
                 " is damaged; the server ignores this snapshot: ", std::string(broken.message()));
    } else {
      foreign = manifest.status();
    }
  });
  if (!read.ok()) return read;
  if (!foreign.ok()) return foreign;
  return kept_.empty() ? broken : absl::OkStatus();
}

absl::StatusOr<KeptSnapshot> SnapshotStore::Write(const ShardSnapshot& snapshot) {
  SLACKLINE_CHECK(snapshot.numbers.arrays.size() == identity_.arrays.size());
  const uint64_t id = next_++;
  absl::StatusOr<uint64_t> bytes = WriteArrays(id, snapshot.numbers);
  if (bytes.ok()) {
    const snapshot::Manifest manifest = ToManifest(identity_, snapshot, *bytes);
    const absl::Status written = database_->PutSynced(ManifestKey(id), manifest.SerializeAsString());
    if (written.ok()) {
      kept_.insert(kept_.begin(), ToKept(id, manifest));
    } else {
      bytes = written;
    }
  }
  // After a failure, too: what was taken in without a manifest goes.
  const absl::Status trimmed = Trim();
  if (!bytes.ok()) return bytes.status();
  if (!trimmed.ok()) return trimmed;
  return kept_.front();
}

absl::StatusOr<uint64_t> SnapshotStore::WriteArrays(uint64_t id, const ShardView& numbers) {
  std::vector<const SliceView*> arrays = {&numbers.weights};
  for (const SliceView& array : numbers.arrays) arrays.push_back(&array);
  const std::unique_ptr<Database::Files> files = database_->NewFiles(options_.file_bytes);
  uint64_t bytes = 0;
  for (size_t array = 0; array < arrays.size(); ++array) {
    for (size_t block = 0; block < arrays[array]->chunks(); ++block) {
      const absl::string_view values = Bytes(arrays[array]->chunk(block));
      if (absl::Status status = files->Put(BlockKey(id, array, block), values); !status.ok()) return status;
      bytes += values.size();
    }
  }
  if (absl::Status status = files->Ingest(); !status.ok()) return status;
  return bytes;
}

absl::Status SnapshotStore::Trim() {
  while (kept_.size() > options_.keep) {
    // The manifest first: what has none is nothing.
    if (absl::Status status = database_->DeleteSynced(ManifestKey(kept_.back().id)); !status.ok()) return status;
    kept_.pop_back();
  }
  uint64_t begin = 0;
  for (auto kept = kept_.rbegin(); kept != kept_.rend(); ++kept) {
    if (absl::Status status = database_->DropFiles(ArraysOf(begin), ArraysOf(kept->id)); !status.ok()) return status;
    begin = kept->id + 1;
  }
  return database_->DropFiles(ArraysOf(begin), std::string(1, kArrays + 1));
}

absl::StatusOr<EngineState> SnapshotStore::Read(uint64_t id, ShardState& shard) const {
  const absl::StatusOr<snapshot::Manifest> manifest = FindManifest(id);
  if (!manifest.ok()) return manifest.status();
  BlockReader blocks(*database_, id, manifest->block_elements());
  const absl::Status read =
      shard.Restore(ToProgress(*manifest), [&](std::optional<size_t> array, uint64_t begin, absl::Span<float> out) {
        const uint64_t elements =
            array ? ArrayElements(identity_.extent, identity_.arrays[*array]) : identity_.extent.size();
        return blocks.Read(array ? *array + 1 : 0, elements, begin, out);
      });
  if (!read.ok()) return read;
  return ToEngineState(*manifest);
}

}  // namespace slackline::ps
