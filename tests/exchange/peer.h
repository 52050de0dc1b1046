// Runs the program of peer_process.cc, for tests in which a process dies, is stopped, or is measured.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/shm/descriptor.h"
#include "tests/exchange/cluster.h"

namespace slackline {

// A process that runs peer_process. Its environment has only the test's settings of the sanitizers. It dies with the
// thread that made it, which is the test's.
//
// Thread-safety: none.
class PeerProcess {
 public:
  explicit PeerProcess(const std::vector<std::string>& arguments);
  ~PeerProcess() { Kill(); }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  // Returns the text after `word` in the next line of standard output that begins with it. Fails the test and returns
  // an empty string if the process ends before, or says nothing for a minute.
  std::string WordsAfter(const std::string& word);
  // Halts all of its threads (SIGSTOP); its sockets and its memory stay.
  void Stop();
  void Resume();
  // Closes the standard input of the process, which tells it to end.
  void TellToEnd() { stdin_ = shm::Descriptor(); }
  void Kill();
  // Returns the most memory, in bytes, that the process has had resident so far.
  uint64_t peak_bytes() const;

 private:
  // Reads the next line of the process's standard output.
  absl::StatusOr<std::string> ReadLine();

  pid_t pid_ = -1;
  shm::Descriptor stdin_, stdout_;
};

// Starts a worker of the only server of `map`, whose shards are of about equal size. The worker has its first weights
// on return.
std::unique_ptr<PeerProcess> StartWorker(uint32_t number, Path path, const worker::ShardMap& map);

}  // namespace slackline
