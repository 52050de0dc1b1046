// Clients of the HTTP server. Their requests arrive and their responses leave without a thread that waits for a single
// client.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/http/http_head.h"
#include "common/shm/descriptor.h"
#include "common/time/clock.h"

namespace slackline {

// Longest time for a request to arrive, and longest time that a client may read nothing of a response.
inline constexpr absl::Duration kHttpPatience = absl::Seconds(3);

struct HttpClient {
  enum class Stage {
    kReading,  // the request arrives
    kWriting,  // the response is sent
    // All of the response is sent. Closing before the client has read it would discard bytes on their way.
    kDraining,
    kGone,
  };

  shm::Descriptor socket;
  absl::Time deadline;
  Stage stage = Stage::kReading;
  // The request: up to the empty line, then the body if one is taken.
  std::string received;
  // Bytes of head and body, once the head is there.
  std::optional<size_t> request_bytes;
  std::string output;
  size_t sent = 0;
};

// The queue of clients that have sent their request: to the threads that answer, and back.
//
// Thread-safety: safe.
class HttpDesk {
 public:
  // Largest number of requests that wait for a thread.
  static constexpr size_t kWaitingMax = 128;

  // Queues a client for a thread. Returns false if too many wait.
  bool Give(std::unique_ptr<HttpClient>& client) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (waiting_.size() >= kWaitingMax) return false;
    waiting_.push_back(std::move(client));
    return true;
  }
  // Waits for a client. Returns null after Close().
  std::unique_ptr<HttpClient> Take() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &HttpDesk::HasWork));
    if (closed_) return nullptr;
    std::unique_ptr<HttpClient> client = std::move(waiting_.front());
    waiting_.pop_front();
    return client;
  }
  void GiveBack(std::unique_ptr<HttpClient> client) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    answered_.push_back(std::move(client));
  }
  std::vector<std::unique_ptr<HttpClient>> TakeAnswered() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return std::exchange(answered_, {});
  }
  void Close() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }

 private:
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return closed_ || !waiting_.empty(); }

  absl::Mutex mutex_;
  std::deque<std::unique_ptr<HttpClient>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<HttpClient>> answered_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

// Reads requests and writes responses on the accepting thread, and never waits for a single client.
//
// Thread-safety: none.
// Ownership:     borrows the listening socket, which does not block, and the desk.
class HttpClients {
 public:
  // Largest number of clients that send a request or receive a response. A further client displaces the oldest.
  static constexpr size_t kClientsMax = 128;
  static constexpr size_t kHeadBytesMax = size_t{16} << 10;

  // `takes_body` returns whether the body after a head is read; otherwise, or if it is null, what follows the head is
  // ignored.
  HttpClients(int listening, HttpDesk& desk, std::function<bool(const HttpHead&)> takes_body)
      : listening_(listening), desk_(desk), takes_body_(std::move(takes_body)) {}

  // Waits for an event and handles it. Returns false once `stop` is readable. `news` is readable once the desk has
  // answered clients.
  bool Turn(int stop, int news);

 private:
  // Returns the time until the next deadline; -1 if there is none.
  int TimeoutMs() const;
  void Accept();
  // Drops the oldest client that is not receiving its response, or else the oldest of all. Returns false if there is
  // none.
  bool DropOldest();
  void TakeAnswered(int news);
  // Continues with a client as far as its socket allows. Moves `client` away if it goes to the desk.
  void Advance(std::unique_ptr<HttpClient>& client);
  void Read(std::unique_ptr<HttpClient>& client);
  // Finds the end of a request. Returns false if the client got a refusal for its head.
  bool Measure(HttpClient& client);
  void Write(HttpClient& client);
  static void Drain(HttpClient& client);

  const int listening_;
  HttpDesk& desk_;
  const std::function<bool(const HttpHead&)> takes_body_;
  const SteadyTime time_;
  std::vector<std::unique_ptr<HttpClient>> clients_;  // oldest first, except those that were at the desk
  absl::Time accept_from_ = absl::InfinitePast();
};

// Returns whether a call on a non-blocking socket failed only for the moment.
bool WouldBlock();

}  // namespace slackline
