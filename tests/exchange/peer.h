// The program of peer_process.cc, for tests in which a process dies, is stopped, or is measured.
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

// Runs with nothing of the test's environment but what is meant for the sanitizers. Dies with the thread that made it,
// which is the test's.
//
// Thread-safety: none.
class PeerProcess {
 public:
  explicit PeerProcess(const std::vector<std::string>& arguments);
  ~PeerProcess() { Kill(); }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  // What follows `word` in the next line of its standard output that begins with it. Fails the test, and is empty, when
  // it ends before, or says nothing for a minute.
  std::string WordsAfter(const std::string& word);
  // Halts all of its threads (SIGSTOP); its sockets and its memory stay.
  void Stop();
  void Resume();
  // Closes its standard input, which tells it to end.
  void TellToEnd() { stdin_ = shm::Descriptor(); }
  void Kill();
  // The most memory that it had resident so far.
  uint64_t peak_bytes() const;

 private:
  // The next line of its standard output.
  absl::StatusOr<std::string> ReadLine();

  pid_t pid_ = -1;
  shm::Descriptor stdin_, stdout_;
};

// A worker of the one server of `map`, which has shards of about equal size. It has its first weights.
std::unique_ptr<PeerProcess> StartWorker(uint32_t number, Path path, const worker::ShardMap& map);

}  // namespace slackline
