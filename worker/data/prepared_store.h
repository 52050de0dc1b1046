// Where prepared images are read from: a folder, or a server; as they are, or by way of copies on this node's disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/data/file_cache.h"
#include "worker/data/http_fetch.h"
#include "worker/data/prepared_index.h"

namespace slackline::worker {

struct StoreOptions {
  std::string path;               // a folder, or http://files.example.org:8000/FOLDER
  std::string cache_folder = {};  // empty: none; a server needs one
  uint64_t cache_bytes_max = 0;
  HttpOptions http = {};
};

// Thread-safety: none.
class PreparedStore {
 public:
  //   kInvalidArgument  a server without a cache
  //   as FileCache::Open()
  static absl::StatusOr<PreparedStore> Open(const StoreOptions& options);

  const std::string& path() const { return options_.path; }
  //   as ReadPreparedIndex(), or HttpFetch::Get()
  absl::StatusOr<PreparedIndex> ReadIndex();
  // A path of the file, which stays as long as it is held. What the cache has no room for is read from the folder
  // itself; from a server that is an error.
  //   as FileCache::Get(), or HttpFetch::Download()
  absl::StatusOr<HeldFile> Get(const PreparedFile& file);

 private:
  explicit PreparedStore(const StoreOptions& options);

  const StoreOptions options_;
  std::unique_ptr<const FileCache> cache_;
  std::unique_ptr<HttpFetch> http_;
  bool full_ = false;
};

}  // namespace slackline::worker
