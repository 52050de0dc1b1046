// Calls and streams between processes: everything takes time, and anything may go wrong.
//
// A call is served by the process that listens at the address when the call is made. It may be lost, served twice, or
// answered after its caller has given up. A stream keeps the order of its messages, both ways; when it breaks, messages
// under way are lost, and its two ends learn of it at different times. Nothing arrives between two processes with a
// partition: calls are lost, streams wait or break.
//
// Any process may have streams to any other: the network does not know what a server is.
#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tests/world/events.h"
#include "tests/world/options.h"

namespace slackline::world {

using StreamId = uint64_t;

// Purpose of a stream.
enum class Method { kExchange, kReplicate };

// End of a stream, at one process.
class StreamEnd {
 public:
  virtual ~StreamEnd() = default;
  virtual void Received(const std::any& what) = 0;
  // Called last; the network has forgotten this end before.
  virtual void Closed(const absl::Status& status) = 0;
};

// A process as the network sees it.
class Host {
 public:
  virtual ~Host() = default;
  // Called when a process opens a stream to this one. Returns null to take none.
  virtual StreamEnd* Accept(StreamId /*stream*/, Method /*method*/) { return nullptr; }

  LifeId life = 0;
  std::string name;
  std::string address;
};

// Thread-safety: none.
// Ownership:     borrows the events, the counts, and the hosts and ends until they are gone.
class Network {
 public:
  Network(Events& events, Counts& counts, uint64_t seed) : events_(events), counts_(counts), random_(seed, 1) {}

  void Listen(Host& host) { hosts_[host.address] = &host; }
  // Ends the host's life. If `silently`, the machine went with it, so that nobody is told.
  void Gone(Host& host, bool silently);

  // --- Calls ---

  template <typename Reply>
  void Call(const Host& from, const std::string& to, absl::Duration timeout,
            std::function<absl::StatusOr<Reply>(Host& callee)> serve,
            std::function<void(const absl::StatusOr<Reply>&)> done) {
    auto shared = std::make_shared<std::function<void(const absl::StatusOr<Reply>&)>>(std::move(done));
    CallErased(
        from, to, timeout,
        [serve = std::move(serve), shared](Host& callee) -> Answer {
          return [shared, reply = serve(callee)] { (*shared)(reply); };
        },
        [shared](const absl::Status& status) { (*shared)(status); });
  }

  // --- Streams ---

  // Opens a stream. `end` is told if it cannot be opened, too.
  StreamId Open(const Host& from, const std::string& to, StreamEnd& end, Method method);
  // Returns whether both ends have the stream and it carries what they send.
  bool Whole(StreamId stream) const;
  // Returns whether the stream is whole and all that was sent has arrived, for a little while (10 ms).
  bool Quiet(StreamId stream) const;
  // Sends from the end that belongs to the life `from`. Sends nothing once that end was closed.
  void Send(StreamId stream, LifeId from, std::any what);
  // Closes the end that belongs to the life `from`; the other end learns of it after all that was sent.
  void Close(StreamId stream, LifeId from, const absl::Status& status);

  // --- Faults ---

  // Breaks a stream. Returns the lives of its two ends; 0 if there is none.
  std::pair<LifeId, LifeId> BreakOne(uint64_t which);
  void Partition(const std::string& a, const std::string& b, absl::Time until);
  void Slow(const std::string& name, absl::Time until);
  void LoseCalls(double share, absl::Time until) { lost_ = {share, until}; }
  void RepeatCalls(double share, absl::Time until) { repeated_ = {share, until}; }
  size_t streams() const { return streams_.size(); }
  // True while calls of all processes may be lost.
  bool Losing() const { return events_.Now() < lost_.until; }
  // True while the links of this process are slow.
  bool IsSlow(const std::string& name) const;
  // True while nothing passes between these two processes.
  bool Separated(const std::string& a, const std::string& b) const { return Cut(a, b) > events_.Now(); }

 private:
  using Answer = std::function<void()>;
  struct Share {
    double share = 0;
    absl::Time until = absl::InfinitePast();
  };
  struct Side {
    LifeId life = 0;
    std::string name;
    StreamEnd* end = nullptr;  // null: closed
    absl::Time last = absl::InfinitePast();
  };
  struct Stream {
    Side sides[2];
    bool broken = false;
  };
  struct Pending {
    LifeId callee = 0;
    LifeId caller = 0;
    std::function<void(const absl::Status&)> failed;
  };

  void CallErased(const Host& from, const std::string& to, absl::Duration timeout,
                  std::function<Answer(Host& callee)> serve, std::function<void(const absl::Status&)> failed);
  void Serve(uint64_t call, const std::string& from, Host* callee, const std::function<Answer(Host&)>& serve);
  void Fail(uint64_t call, const absl::Status& status);
  absl::Duration Delay(const std::string& a, const std::string& b);
  // Returns the time at which a message sent now arrives; partitions hold it back.
  absl::Time Arrival(const std::string& a, const std::string& b);
  absl::Time Cut(const std::string& a, const std::string& b) const;
  void Break(StreamId id, Stream& stream);
  void TellClosed(StreamId id, int side, absl::Time at, const absl::Status& status);
  bool Now(const Share& share) { return events_.Now() < share.until && random_.Chance(share.share); }

  Events& events_;
  Counts& counts_;
  Random random_;
  std::map<std::string, Host*> hosts_;
  std::map<StreamId, Stream> streams_;
  std::map<uint64_t, Pending> pending_;
  std::map<std::pair<std::string, std::string>, absl::Time> partitions_;
  std::map<std::string, absl::Time> slow_;
  Share lost_, repeated_;
  StreamId last_stream_ = 0;
  uint64_t last_call_ = 0;
};

}  // namespace slackline::world
