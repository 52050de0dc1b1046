// Clients of the HTTP server: their requests arrive and their responses leave without a thread that waits for one of
// them.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/shm/descriptor.h"

namespace slackline {

// For a request to arrive; and for a client to take something of a response.
inline constexpr absl::Duration kHttpPatience = absl::Seconds(3);

struct HttpClient {
  enum class Stage {
    kReading,   // its request arrives
    kWriting,   // it takes the response
    kDraining,  // it has all of it: closing before it has would take back what is on its way
    kGone,
  };

  shm::Descriptor socket;
  absl::Time deadline;
  Stage stage = Stage::kReading;
  // Its request, up to the empty line.
  std::string received;
  std::string output;
  size_t sent = 0;
};

// Clients that have sent their request, on their way to a thread that answers and back.
//
// Thread-safety: safe.
class HttpDesk {
 public:
  // Requests that wait for a thread.
  static constexpr size_t kWaitingMax = 128;

  // False if too many wait.
  bool Give(std::unique_ptr<HttpClient>& client) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (waiting_.size() >= kWaitingMax) return false;
    waiting_.push_back(std::move(client));
    return true;
  }
  // Waits for one. Null: Close() was called.
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

// The accepting thread's: reads requests and writes responses, and never waits for one client.
//
// Thread-safety: none.
// Ownership:     borrows the listening socket, which does not block, and the desk.
class HttpClients {
 public:
  // That send their request or take their response. A further one takes the place of the oldest.
  static constexpr size_t kClientsMax = 128;
  static constexpr size_t kHeadBytesMax = size_t{16} << 10;

  HttpClients(int listening, HttpDesk& desk) : listening_(listening), desk_(desk) {}

  // Waits for something to do and does it. False once `stop` is readable. `news` is readable once the desk has clients
  // with their answers.
  bool Turn(int stop, int news);

 private:
  // Until the next deadline; -1 if there is none.
  int TimeoutMs() const;
  void Accept();
  // Rather one that is silent than one that takes its response. False if there is none.
  bool DropOldest();
  void TakeAnswered(int news);
  // Goes on as far as the socket lets it; takes the client away if it goes to the desk.
  void Advance(std::unique_ptr<HttpClient>& client);
  void Read(std::unique_ptr<HttpClient>& client);
  void Write(HttpClient& client);
  static void Drain(HttpClient& client);

  const int listening_;
  HttpDesk& desk_;
  const SteadyTime time_;
  std::vector<std::unique_ptr<HttpClient>> clients_;  // oldest first, but for those that were at the desk
  absl::Time accept_from_ = absl::InfinitePast();
};

// Whether a call on a socket that does not block failed only for now.
bool WouldBlock();

}  // namespace slackline
