// A server of files over HTTP/1.1 on loopback that does as it is told: breaks off, says codes, knows no ranges, hangs.
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

namespace slackline::worker {

// Thread-safety: safe.
// Threads:       one, which serves a connection at a time.
class BrokenFileServer {
 public:
  BrokenFileServer();
  ~BrokenFileServer();

  std::string Address(const std::string& path) const;
  void Serve(const std::string& path, const std::string& body);
  // The next answers break off after so many bytes each.
  void BreakOff(std::vector<uint64_t> after);
  // The next answers are these codes.
  void Say(std::vector<int> codes);
  void KnowNoRanges();
  // Sends parts, and not which they are; or says that they begin so much later than was asked.
  void KeepRangesToItself();
  void ShiftRanges(uint64_t by);
  // Takes requests, and never answers.
  void Hang();
  // What each request had in its field Range.
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

}  // namespace slackline::worker
