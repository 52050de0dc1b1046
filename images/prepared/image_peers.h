// ImagePeers: gets a job's files onto its nodes cooperatively. Each node asks which file to get next and from where,
// and serves the files that it has to the other nodes (docs/adr/0049-nodes-serve-each-other.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "images/prepared/file_fetch.h"
#include "images/prepared/peer_files.h"
#include "images/prepared/prepared_index.h"

namespace slackline::images {

// PeerBoard knows which node has which file: the scheduler, reached over the network. Fields are those of
// FindImagesRequest and FindImagesReply.
//
// Thread-safety: safe.
class PeerBoard {
 public:
  struct Question {
    std::string address;
    uint64_t files_checksum = 0;
    uint32_t files = 0;
    std::string held;
    bool wants = false;
    std::vector<std::string> failed;
    absl::Duration patience;
    uint32_t spread = 0;
    bool wants_share = false;
    std::optional<uint32_t> needs = std::nullopt;
    bool full = false;
  };
  struct Answer {
    std::optional<uint32_t> file;
    std::string from;  // empty: the place that the job file names
    absl::Duration retry;
    std::optional<uint32_t> drop = std::nullopt;
  };

  virtual ~PeerBoard() = default;
  // Asks one question. If the question wants a file that every node gets, repeats it as long as the answering side may
  // be silent; else asks once.
  virtual absl::StatusOr<Answer> Ask(const Question& question) = 0;
};

// ImagePeers is one node's part of the exchange.
//
// Thread-safety: safe; Begin() comes first.
// Threads:       one, from Begin() on, which reports what this node has; and those of PeerFiles.
class ImagePeers {
 public:
  struct Options {
    PeerFiles::Options serve;
    // Interval of the reports of what this node has.
    absl::Duration beat_every = absl::Seconds(1);
    // Silence of another node after which it is not asked again.
    absl::Duration silence_max = absl::Seconds(20);
  };
  // A file and the place from which to get it.
  struct Source {
    size_t file = 0;
    std::string peer;  // empty: the place that the job file names
  };

  // Starts serving files.
  //   as PeerFiles::Start()
  static absl::StatusOr<std::unique_ptr<ImagePeers>> Start(const Options& options, std::unique_ptr<PeerBoard> board);
  ImagePeers(const ImagePeers&) = delete;
  ImagePeers& operator=(const ImagePeers&) = delete;
  ~ImagePeers();

  // Answer to a node that asks for a share of the spread files.
  struct Share {
    std::optional<size_t> file;  // file to get from the place that the job file names, and to keep
    std::optional<size_t> drop;  // file to give up, since other nodes have it and this one is full
    absl::Duration retry;        // time after which to ask again, if there is neither
  };

  // Sets the list of files. All workers of the job must use the same order. The first `spread` files are spread over
  // the nodes: Next() does not name them.
  void Begin(std::vector<PreparedFile> files, size_t spread = 0) ABSL_LOCKS_EXCLUDED(mutex_);
  // Announces that file `i` is at `path` until Lose(), or for as long as this object exists.
  void Have(size_t i, const std::string& path) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes that back.
  void Lose(size_t i) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sets whether the cache has no room for another spread file.
  void SetFull(bool full) ABSL_LOCKS_EXCLUDED(mutex_);
  // Asks, once, which spread file this node is to get and keep.
  //   as Next()
  absl::StatusOr<Share> NextShare() ABSL_LOCKS_EXCLUDED(mutex_);
  // Asks, once, where spread file `i` is. Returns nullopt if another node is reading it from its origin, after a short
  // wait for that.
  //   as Next()
  absl::StatusOr<std::optional<Source>> Find(size_t i) ABSL_LOCKS_EXCLUDED(mutex_);
  // Address at which this node serves.
  const std::string& address() const { return serves_->address(); }
  // Returns the file to get next. Returns nullopt if other nodes are getting the missing files, after a short wait for
  // them.
  //   as PeerBoard::Ask()
  //   kInternal  the answer is invalid
  absl::StatusOr<std::optional<Source>> Next() ABSL_LOCKS_EXCLUDED(mutex_);
  // Gets a file from the peer that Next() named. If that fails, the peer is not named again, and the log says why.
  absl::Status Fetch(const Source& source, const std::string& path) ABSL_LOCKS_EXCLUDED(mutex_);
  // Gets a file from the peer that Find() named into memory. Otherwise as Fetch(). The bytes are not compared.
  absl::StatusOr<std::string> Read(const Source& source) ABSL_LOCKS_EXCLUDED(mutex_);
  // Reports that the peer sent bytes other than those of the file.
  void SentOtherBytes(const Source& source) ABSL_LOCKS_EXCLUDED(mutex_);

  uint64_t bytes_fetched() const ABSL_LOCKS_EXCLUDED(mutex_);
  uint64_t bytes_served() const { return serves_->bytes_sent(); }

 private:
  ImagePeers(const Options& options, std::unique_ptr<PeerBoard> board, std::unique_ptr<PeerFiles> serves);
  PeerBoard::Question MakeQuestion(bool wants) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Beat() ABSL_LOCKS_EXCLUDED(mutex_);
  void NoteFailure(const std::string& peer) ABSL_LOCKS_EXCLUDED(mutex_);
  PreparedFile FileOf(const Source& source) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Asks, and checks that the answer names files that exist.
  absl::StatusOr<PeerBoard::Answer> Ask(const PeerBoard::Question& question);
  // Waits for `duration`, or until this object ends.
  void Wait(absl::Duration duration) ABSL_LOCKS_EXCLUDED(mutex_);
  // Counts the bytes of a transfer, or notes and logs that the peer failed. Returns `fetched`.
  absl::Status Judge(const Source& source, const PreparedFile& file, const std::string& address,
                     const absl::Status& fetched) ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const std::unique_ptr<PeerBoard> board_;
  const std::unique_ptr<PeerFiles> serves_;
  mutable absl::Mutex mutex_;
  std::vector<PreparedFile> files_ ABSL_GUARDED_BY(mutex_);
  size_t spread_ ABSL_GUARDED_BY(mutex_) = 0;
  bool full_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t files_checksum_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration patience_ ABSL_GUARDED_BY(mutex_);
  std::string held_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> failed_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_fetched_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread beats_;
};

}  // namespace slackline::images
