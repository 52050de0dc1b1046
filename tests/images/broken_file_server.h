// An HTTP/1.1 file server on loopback that misbehaves as a test tells it to: it breaks off, answers with codes, ignores
// ranges, or hangs.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace slackline::images {

// Thread-safety: safe.
// Threads:       one, which serves a connection at a time.
class BrokenFileServer {
 public:
  BrokenFileServer();
  ~BrokenFileServer();

  std::string Address(const std::string& path) const;
  void Serve(const std::string& path, const std::string& body);
  // Makes the next answers break off, each after so many bytes.
  void BreakOff(std::vector<uint64_t> after);
  // Makes these codes the next answers.
  void Say(std::vector<int> codes);
  void KnowNoRanges();
  // Makes the server send parts without saying which ones; or say that they begin `by` bytes later than was asked.
  void KeepRangesToItself();
  void ShiftRanges(uint64_t by);
  // Makes the server take requests and never answer.
  void Hang();
  // Returns the field Range of each request.
  std::vector<std::string> ranges() const;
  uint64_t bytes_sent() const;

 private:
  void Run();
  // Answers requests of one connection until it ends.
  void Talk(int connection);
  bool Answer(int connection, absl::string_view request);

  int listener_ = -1;
  int wake_[2] = {-1, -1};
  uint16_t port_ = 0;
  mutable absl::Mutex mutex_;
  std::map<std::string, std::string> files_ ABSL_GUARDED_BY(mutex_);
  std::deque<uint64_t> breaks_ ABSL_GUARDED_BY(mutex_);
  std::deque<int> codes_ ABSL_GUARDED_BY(mutex_);
  bool no_ranges_ ABSL_GUARDED_BY(mutex_) = false;
  bool ranges_unsaid_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t range_shift_ ABSL_GUARDED_BY(mutex_) = 0;
  bool hangs_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::string> ranges_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_sent_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace slackline::images
