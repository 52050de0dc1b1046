#include "images/prepared/prepared_store.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/http/http_address.h"
#include "common/log/logging.h"
#include "common/storage/checksum.h"

namespace slackline::images {
namespace {

constexpr uint64_t kIndexBytes = uint64_t{256} << 20;

// Whole. A part of an earlier attempt goes first: it has the rights of the file, which may let nobody write. What is
// left of this one would only take room.
absl::Status CopyFile(const std::string& from, const std::string& to) {
  std::error_code error, ignored;
  // The target stays where it is meanwhile: the cache counts the room of files that exist.
  std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing, error);
  if (!error) return absl::OkStatus();
  std::filesystem::remove(to, ignored);
  const std::string message = absl::StrCat("cannot copy ", from, " to ", to, ": ", error.message());
  if (error == std::errc::no_such_file_or_directory) return absl::NotFoundError(message);
  return error == std::errc::no_space_on_device ? absl::ResourceExhaustedError(message)
                                                : absl::UnavailableError(message);
}

// Reads at most `bytes_max` bytes and one more, by which a longer file is known.
absl::StatusOr<std::string> ReadWhole(const std::string& path, uint64_t bytes_max) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  std::string bytes(bytes_max + 1, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (file.bad()) return absl::UnavailableError(absl::StrCat("cannot read ", path));
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

}  // namespace

PreparedStore::PreparedStore(const PreparedStoreOptions& options) : options_(options) {
  if (IsFileServer(options.path)) server_ = std::make_unique<FileFetch>(options.fetch);
}

absl::StatusOr<PreparedStore> PreparedStore::Open(const PreparedStoreOptions& options) {
  PreparedStore store(options);
  if (options.cache_folder.empty()) {
    if (store.server_ == nullptr) return store;
    return absl::InvalidArgumentError(
        absl::StrCat("data.path: found ", options.path, " without data.cache.folder; allowed is a server with one"));
  }
  absl::StatusOr<FileCache> cache = FileCache::Open(
      {.folder = options.cache_folder, .bytes_max = options.cache_bytes_max, .patience = options.fetch.give_up});
  if (!cache.ok()) return cache.status();
  store.cache_ = std::make_unique<const FileCache>(*std::move(cache));
  return store;
}

absl::StatusOr<PreparedIndex> PreparedStore::ReadIndex() {
  if (server_ == nullptr) return ReadPreparedIndex(options_.path);
  const std::string address = absl::StrCat(absl::StripSuffix(options_.path, "/"), "/", kPreparedIndexFile);
  const absl::StatusOr<std::string> text = server_->Get(address, kIndexBytes);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat(text.status().message(), "; needed is a folder that `slackline prepare` has written"));
  }
  if (!text.ok()) return text.status();
  absl::StatusOr<PreparedIndex> index = ParsePreparedIndex(*text);
  if (!index.ok()) return absl::InvalidArgumentError(absl::StrCat(address, ": ", index.status().message()));
  return index;
}

std::string PreparedStore::OriginOf(const PreparedFile& file) const {
  return absl::StrCat(absl::StripSuffix(options_.path, "/"), "/",
                      server_ != nullptr ? EscapedPath(file.name) : file.name);
}

absl::Status PreparedStore::FetchFromOrigin(const PreparedFile& file, const std::string& path,
                                            const FetchWatch& watch) {
  const std::string origin = OriginOf(file);
  absl::Status fetched =
      server_ != nullptr ? server_->Download(origin, path, file.bytes, {.watch = watch}) : CopyFile(origin, path);
  if (fetched.ok()) bytes_from_origin_ += file.bytes;
  return fetched;
}

absl::StatusOr<HeldFile> PreparedStore::GetFrom(const ImagePeers::Source& source, const PreparedFile& file) {
  bool asked = false;
  return cache_->Get(file, [&](const std::string& path) -> absl::Status {
    if (source.peer.empty()) return FetchFromOrigin(file, path);
    if (asked) {
      // The cache has compared, and wants it once more.
      options_.peers->SentOtherBytes(source);
      return FetchFromOrigin(file, path);
    }
    asked = true;
    const absl::Status fetched = options_.peers->Fetch(source, path);
    if (fetched.ok() || absl::IsResourceExhausted(fetched)) return fetched;
    // What there is of it may be wrong.
    std::error_code gone;
    std::filesystem::remove(path, gone);
    return absl::AbortedError(fetched.message());
  });
}

absl::Status PreparedStore::GetTogether(const std::vector<PreparedFile>& files, size_t spread) {
  if (options_.peers == nullptr || cache_ == nullptr) return absl::OkStatus();
  ImagePeers& peers = *options_.peers;
  peers.Begin(files, spread);
  const size_t wanted = files.size() - spread;
  const auto keep = [&](size_t i, HeldFile held) {
    peers.Have(i, held.path);
    together_[files[i].name] = std::move(held);
  };
  const auto look = [&] {
    for (size_t i = spread; i < files.size(); ++i) {
      if (together_.contains(files[i].name)) continue;
      if (std::optional<HeldFile> held = cache_->Find(files[i])) keep(i, *std::move(held));
    }
  };
  for (look(); together_.size() < wanted;) {
    const absl::StatusOr<std::optional<ImagePeers::Source>> source = peers.Next();
    if (!source.ok()) {
      log::Warning("data.cache.peers: ", source.status().message(), "; the other files come from ", options_.path);
      return absl::OkStatus();
    }
    if (!*source) {
      // Another worker of this node may get them meanwhile.
      look();
      continue;
    }
    absl::StatusOr<HeldFile> held = GetFrom(**source, files[(*source)->file]);
    if (held.ok()) {
      keep((*source)->file, *std::move(held));
    } else if (absl::IsResourceExhausted(held.status())) {
      return absl::OkStatus();
    } else if (!absl::IsAborted(held.status())) {
      return held.status();
    }
  }
  log::Info("data.cache.peers: all ", wanted, " files that every node gets are here; ", peers.bytes_fetched(),
            " bytes came from other workers, ", bytes_from_origin_, " from ", options_.path);
  return absl::OkStatus();
}

absl::StatusOr<HeldFile> PreparedStore::Keep(const PreparedFile& file, const FetchWatch& watch) {
  return cache_->Get(
      file, [&](const std::string& path) { return FetchFromOrigin(file, path, watch); }, watch);
}

absl::StatusOr<std::string> PreparedStore::Read(const PreparedFile& file) {
  const std::string origin = OriginOf(file);
  absl::StatusOr<std::string> bytes =
      server_ != nullptr ? server_->Get(origin, file.bytes) : ReadWhole(origin, file.bytes);
  if (!bytes.ok()) return bytes;
  if (bytes->size() != file.bytes || ChecksumOf(*bytes) != file.checksum) {
    return absl::DataLossError(absl::StrCat(origin, " is not what index.json says: it has other bytes; found ",
                                            bytes->size(), " of them, needed are ", file.bytes));
  }
  bytes_from_origin_ += file.bytes;
  return bytes;
}

absl::StatusOr<HeldFile> PreparedStore::Get(const PreparedFile& file, const FetchWatch& watch) {
  if (const auto held = together_.find(file.name); held != together_.end()) return held->second;
  const std::string origin = OriginOf(file);
  if (cache_ == nullptr || full_) return HeldFile{.path = origin};
  absl::StatusOr<HeldFile> held = Keep(file, watch);
  if (server_ == nullptr && absl::IsResourceExhausted(held.status())) {
    log::Warning(std::string(held.status().message()), "; it and the files behind it are read from ", options_.path);
    full_ = true;
    return HeldFile{.path = origin};
  }
  // Errors of servers name the address themselves.
  if (absl::IsDataLoss(held.status())) {
    return absl::DataLossError(absl::StrCat(options_.path, ": ", held.status().message()));
  }
  return held;
}

}  // namespace slackline::images
