// PreparedStore: reads prepared images from a folder or a server, directly or through copies on this node's disk.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "images/prepared/file_cache.h"
#include "images/prepared/file_fetch.h"
#include "images/prepared/image_peers.h"
#include "images/prepared/prepared_index.h"

namespace slackline::images {

struct PreparedStoreOptions {
  std::string path;               // a folder, or one of a file server, see CheckServerAddress()
  std::string cache_folder = {};  // empty: no cache; a server needs one
  uint64_t cache_bytes_max = 0;
  FetchOptions fetch = {};
  // Other nodes to get files from; null: none. Only with a cache.
  ImagePeers* peers = nullptr;
};

// PreparedStore finds the files of one data set.
//
// Thread-safety: none.
class PreparedStore {
 public:
  // Opens a store.
  //   kInvalidArgument  a server without a cache
  //   as FileCache::Open()
  static absl::StatusOr<PreparedStore> Open(const PreparedStoreOptions& options);

  const std::string& path() const { return options_.path; }
  // Number of bytes of files that this store got from the folder or the server.
  uint64_t bytes_from_origin() const { return bytes_from_origin_; }
  // Reads index.json.
  //   as ReadPreparedIndex(), or FileFetch::Get()
  absl::StatusOr<PreparedIndex> ReadIndex();
  // If there are peers, gets these files into the cache, each from the place that the peers agree on, and serves them
  // from then on. Get() handles the files that do not fit into the cache, and all remaining files if the peers cannot
  // be asked.
  // The first `spread` files are listed for the peers, but not got.
  //   as Get()
  absl::Status GetTogether(const std::vector<PreparedFile>& files, size_t spread = 0);
  // Returns a path of the file, which is valid as long as the result is held. After the first file that does not fit
  // into the cache, this and all later files are read from the folder, except those that GetTogether() got. With a
  // server, a file that does not fit is an error. `watch` may be null.
  //   as FileCache::Get(), or FileFetch::Download()
  absl::StatusOr<HeldFile> Get(const PreparedFile& file, const FetchWatch& watch = nullptr);

  // Members for files of which the node keeps a part. They need a cache.
  // Returns the copy in the cache, or nullopt.
  std::optional<HeldFile> Find(const PreparedFile& file) const { return cache_->Find(file); }
  // Returns the copy in the cache, which is got from the folder or the server if there is none.
  //   kResourceExhausted  the cache has no room for it
  //   otherwise as Get()
  absl::StatusOr<HeldFile> Keep(const PreparedFile& file, const FetchWatch& watch = nullptr);
  // Reads a file from the folder or the server into memory, and compares its checksum.
  //   kDataLoss  the file is not what index.json says
  //   otherwise as Get()
  absl::StatusOr<std::string> Read(const PreparedFile& file);

 private:
  explicit PreparedStore(const PreparedStoreOptions& options);
  std::string OriginOf(const PreparedFile& file) const;
  // Gets a file from the folder or the server.
  absl::Status FetchFromOrigin(const PreparedFile& file, const std::string& path, const FetchWatch& watch = nullptr);
  // Gets a file into the cache from the place that the peers named.
  //   kAborted  the peer did not deliver the file; ask for another place
  absl::StatusOr<HeldFile> GetFrom(const ImagePeers::Source& source, const PreparedFile& file);

  const PreparedStoreOptions options_;
  std::unique_ptr<const FileCache> cache_;
  std::unique_ptr<FileFetch> server_;  // null: a folder
  bool full_ = false;
  // Files that GetTogether() got, by name.
  std::map<std::string, HeldFile> together_;
  uint64_t bytes_from_origin_ = 0;
};

}  // namespace slackline::images
