// PeerFiles: serves files of this node's cache to the job's other nodes: HTTP/1.1 with ranges, for callers that know
// its secret.
//
//   GET /SECRET/CHECKSUM-BYTES    an offered file, named by its XXH3 and size; there are no other paths
//
// The secret is drawn at start and reaches other workers only through the scheduler. Whoever may call the scheduler may
// read the images, and nobody else, unless someone listens on the network.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/http/http_server.h"
#include "images/prepared/prepared_index.h"

namespace slackline::images {

// Returns the name of a file in a peer's address.
std::string PeerFileName(const PreparedFile& file);
// Returns HOST:PORT of HOST:PORT/SECRET, for messages.
absl::string_view WithoutSecret(absl::string_view address);

// PeerFiles runs the HTTP server of one node.
//
// Thread-safety: safe.
// Threads:       those of its HTTP server.
class PeerFiles {
 public:
  struct Options {
    std::string listen = "127.0.0.1";  // numeric
    std::string ports = {};            // format of network.ports
    std::string advertise = {};        // host that other nodes use; empty: `listen`
  };
  // Starts the server.
  //   kUnavailable, kResourceExhausted  no port can be listened on
  static absl::StatusOr<std::unique_ptr<PeerFiles>> Start(const Options& options);

  // Address in the form HOST:PORT/SECRET.
  const std::string& address() const { return address_; }
  // Offers a file. `path` must hold it until it is withdrawn, or for as long as this object exists.
  void Offer(const PreparedFile& file, const std::string& path) ABSL_LOCKS_EXCLUDED(mutex_);
  // Stops offering a file. Transfers that have begun may read it on.
  void Withdraw(const PreparedFile& file) ABSL_LOCKS_EXCLUDED(mutex_);
  // Total number of bytes sent to all peers.
  uint64_t bytes_sent() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Offered {
    std::string path;
    uint64_t bytes = 0;
  };

  PeerFiles();
  HttpResponse Answer(const HttpRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends [from, end) of the file behind `descriptor`.
  void Send(HttpStream& stream, int descriptor, uint64_t from, uint64_t end) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string secret_;
  std::string address_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Offered> offered_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_sent_ ABSL_GUARDED_BY(mutex_) = 0;
  // Declared last: its threads use the other members.
  std::unique_ptr<HttpServer> server_;
};

}  // namespace slackline::images
