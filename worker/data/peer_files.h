// Files of this node's cache, for other nodes of the job: HTTP/1.1 with ranges, to those who know its secret.
//
//   GET /SECRET/CHECKSUM-BYTES    a file that was offered, by its XXH3 and size; nothing else is there
//
// The secret is drawn when it starts, and goes to other workers by way of the scheduler only: who may call that may
// read the images, and nobody else, unless the network is listened to.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/http_server.h"
#include "worker/data/prepared_index.h"

namespace slackline::worker {

// The name of a file in the address of a peer.
std::string PeerFileName(const PreparedFile& file);
// HOST:PORT/SECRET without its secret, for messages.
absl::string_view WithoutSecret(absl::string_view address);

// Thread-safety: safe.
// Threads:       those of its HTTP server.
class PeerFiles {
 public:
  struct Options {
    std::string listen = "127.0.0.1";  // numeric
    std::string ports = {};            // as network.ports
    std::string advertise = {};        // the host that others use; empty: `listen`
  };
  //   kUnavailable, kResourceExhausted  no port can be listened on
  static absl::StatusOr<std::unique_ptr<PeerFiles>> Start(const Options& options);

  // HOST:PORT/SECRET
  const std::string& address() const { return address_; }
  // `path` has the file as long as this lives.
  void Offer(const PreparedFile& file, const std::string& path) ABSL_LOCKS_EXCLUDED(mutex_);
  // To all others together.
  uint64_t bytes_sent() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Offered {
    std::string path;
    uint64_t bytes = 0;
  };

  PeerFiles();
  HttpResponse Answer(const HttpRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends [from, end) of what `descriptor` reads.
  void Send(HttpStream& stream, int descriptor, uint64_t from, uint64_t end) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string secret_;
  std::string address_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Offered> offered_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_sent_ ABSL_GUARDED_BY(mutex_) = 0;
  // Last: its threads use the others.
  std::unique_ptr<HttpServer> server_;
};

}  // namespace slackline::worker
