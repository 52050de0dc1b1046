// Where prepared images are read from: a folder, or a server; as they are, or by way of copies on this node's disk.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/data/file_cache.h"
#include "worker/data/http_fetch.h"
#include "worker/data/image_peers.h"
#include "worker/data/prepared_index.h"

namespace slackline::worker {

struct StoreOptions {
  std::string path;               // a folder, or http://files.example.org:8000/FOLDER
  std::string cache_folder = {};  // empty: none; a server needs one
  uint64_t cache_bytes_max = 0;
  HttpOptions http = {};
  // Of other nodes; null: there are none to ask. With a cache only.
  ImagePeers* peers = nullptr;
};

// Thread-safety: none.
class PreparedStore {
 public:
  //   kInvalidArgument  a server without a cache
  //   as FileCache::Open()
  static absl::StatusOr<PreparedStore> Open(const StoreOptions& options);

  const std::string& path() const { return options_.path; }
  // Of files, by this store.
  uint64_t bytes_from_origin() const { return bytes_from_origin_; }
  //   as ReadPreparedIndex(), or HttpFetch::Get()
  absl::StatusOr<PreparedIndex> ReadIndex();
  // With peers: gets these into the cache, each from the place that the peers agree on, and serves them from then on.
  // Where they cannot be asked, and what the cache has no room for, is left to Get().
  //   as Get()
  absl::Status GetTogether(const std::vector<PreparedFile>& files);
  // A path of the file, which stays as long as it is held. What the cache has no room for is read from the folder
  // itself; from a server that is an error.
  //   as FileCache::Get(), or HttpFetch::Download()
  absl::StatusOr<HeldFile> Get(const PreparedFile& file);

 private:
  explicit PreparedStore(const StoreOptions& options);
  std::string OriginOf(const PreparedFile& file) const;
  // From the folder, or the server.
  absl::Status FetchFromOrigin(const PreparedFile& file, const std::string& path);
  //   kAborted  the peer has not given it: another place is to be asked for
  absl::StatusOr<HeldFile> GetFrom(const ImagePeers::Source& source, const PreparedFile& file);

  const StoreOptions options_;
  std::unique_ptr<const FileCache> cache_;
  std::unique_ptr<HttpFetch> http_;
  bool full_ = false;
  // What GetTogether() has got, by name.
  std::map<std::string, HeldFile> together_;
  uint64_t bytes_from_origin_ = 0;
};

}  // namespace slackline::worker
