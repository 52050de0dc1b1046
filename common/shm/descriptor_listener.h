// Answers processes of the same machine and user that ask for descriptors, or hand some over.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/shm/descriptor.h"
#include "common/shm/descriptor_exchange.h"

namespace slackline::shm {

struct DescriptorReply {
  // At most kMessageBytesMax.
  std::string message;
  // At most kReplyDescriptorsMax.
  std::vector<SharedDescriptor> descriptors;
};

// Called on the listener's thread, for one request at a time; the others wait, so it must be quick. An error goes to
// the peer as it is.
using DescriptorHandler = std::function<absl::StatusOr<DescriptorReply>(DescriptorMessage request)>;

struct DescriptorListenerOptions {
  // Abstract name, without its leading zero byte. Empty: a random one.
  std::string name;
  // A connection that is not done after this long is closed.
  absl::Duration peer_timeout = absl::Seconds(5);
  // Further ones wait until one is done.
  size_t connections_max = 64;
};

// An abstract Unix socket with its own thread. One connection carries one request and its reply. A peer can do no more
// than be refused: wrong bytes, wrong users, silence and deaths end its own connection only.
//
// Thread-safety: const calls are safe.
// Threads:       one, until the destructor.
class DescriptorListener {
 public:
  //   kAlreadyExists    somebody listens under that name
  //   kInvalidArgument  a name that is too long
  static absl::StatusOr<std::unique_ptr<DescriptorListener>> Start(const DescriptorListenerOptions& options,
                                                                   DescriptorHandler handler);
  DescriptorListener(const DescriptorListener&) = delete;
  DescriptorListener& operator=(const DescriptorListener&) = delete;
  ~DescriptorListener();

  // For Exchange() in other processes.
  const std::string& name() const { return options_.name; }

 private:
  struct Sockets {
    Descriptor listening;
    // Readable once the thread shall end.
    Descriptor wake;
  };

  DescriptorListener(DescriptorListenerOptions options, DescriptorHandler handler, Sockets sockets);
  void Run();

  const DescriptorListenerOptions options_;
  const DescriptorHandler handler_;
  const Sockets sockets_;
  std::thread thread_;
};

}  // namespace slackline::shm
