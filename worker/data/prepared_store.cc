#include "worker/data/prepared_store.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/logging.h"

namespace slackline::worker {
namespace {

constexpr uint64_t kIndexBytes = uint64_t{256} << 20;

// Whole. A part of an earlier attempt goes first: it has the rights of the file, which may let nobody write. What is
// left of this one would only take room.
absl::Status CopyFile(const std::string& from, const std::string& to) {
  std::error_code error, ignored;
  std::filesystem::remove(to, ignored);
  std::filesystem::copy_file(from, to, error);
  if (!error) return absl::OkStatus();
  std::filesystem::remove(to, ignored);
  const std::string message = absl::StrCat("cannot copy ", from, " to ", to, ": ", error.message());
  if (error == std::errc::no_such_file_or_directory) return absl::NotFoundError(message);
  return error == std::errc::no_space_on_device ? absl::ResourceExhaustedError(message)
                                                : absl::UnavailableError(message);
}

}  // namespace

PreparedStore::PreparedStore(const StoreOptions& options) : options_(options) {
  if (IsHttp(options.path)) http_ = std::make_unique<HttpFetch>(options.http);
}

absl::StatusOr<PreparedStore> PreparedStore::Open(const StoreOptions& options) {
  PreparedStore store(options);
  if (options.cache_folder.empty()) {
    if (store.http_ == nullptr) return store;
    return absl::InvalidArgumentError(
        absl::StrCat("data.path: found ", options.path, " without data.cache.folder; allowed is a server with one"));
  }
  absl::StatusOr<FileCache> cache = FileCache::Open(
      {.folder = options.cache_folder, .bytes_max = options.cache_bytes_max, .patience = options.http.give_up});
  if (!cache.ok()) return cache.status();
  store.cache_ = std::make_unique<const FileCache>(*std::move(cache));
  return store;
}

absl::StatusOr<PreparedIndex> PreparedStore::ReadIndex() {
  if (http_ == nullptr) return ReadPreparedIndex(options_.path);
  const std::string address = absl::StrCat(absl::StripSuffix(options_.path, "/"), "/", kPreparedIndexFile);
  const absl::StatusOr<std::string> text = http_->Get(address, kIndexBytes);
  if (!text.ok()) return text.status();
  absl::StatusOr<PreparedIndex> index = ParsePreparedIndex(*text);
  if (!index.ok()) return absl::InvalidArgumentError(absl::StrCat(address, ": ", index.status().message()));
  return index;
}

absl::StatusOr<HeldFile> PreparedStore::Get(const PreparedFile& file) {
  const std::string origin = absl::StrCat(absl::StripSuffix(options_.path, "/"), "/", file.name);
  if (cache_ == nullptr || full_) return HeldFile{.path = origin};
  absl::StatusOr<HeldFile> held = cache_->Get(file, [&](const std::string& path) {
    return http_ != nullptr ? http_->Download(origin, path, file.bytes) : CopyFile(origin, path);
  });
  if (http_ == nullptr && absl::IsResourceExhausted(held.status())) {
    log::Warning(std::string(held.status().message()), "; it and the files behind it are read from ", options_.path);
    full_ = true;
    return HeldFile{.path = origin};
  }
  // HTTP errors name the address themselves.
  if (absl::IsDataLoss(held.status())) {
    return absl::DataLossError(absl::StrCat(options_.path, ": ", held.status().message()));
  }
  return held;
}

}  // namespace slackline::worker
