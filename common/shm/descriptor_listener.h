// Answers processes of the same machine and user that request descriptors, or that hand some over.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/shm/descriptor.h"
#include "common/shm/descriptor_exchange.h"

namespace slackline::shm {

struct DescriptorReply {
  // Text of at most kMessageBytesMax bytes.
  std::string message;
  // Descriptors, at most kReplyDescriptorsMax.
  std::vector<SharedDescriptor> descriptors;
};

// Called on the listener's thread, for one request at a time. It must be quick, since other requests wait. An error
// goes to the peer unchanged.
using DescriptorHandler = std::function<absl::StatusOr<DescriptorReply>(DescriptorMessage request)>;

struct DescriptorListenerOptions {
  // Abstract name, without its leading zero byte. Empty: a random name.
  std::string name;
  // Time after which an unfinished connection is closed.
  absl::Duration peer_timeout = absl::Seconds(5);
  // Largest number of connections. Further ones wait until one is done.
  size_t connections_max = 64;
};

// An abstract Unix socket with its own thread. One connection carries one request and its reply. A peer can harm only
// its own connection: wrong bytes, a wrong user, silence or a crash end that connection and no other.
//
// Thread-safety: const calls are safe.
// Threads:       one, until the destructor ends it.
class DescriptorListener {
 public:
  //   kAlreadyExists    another listener has that name
  //   kInvalidArgument  the name is too long
  static absl::StatusOr<std::unique_ptr<DescriptorListener>> Start(const DescriptorListenerOptions& options,
                                                                   DescriptorHandler handler);
  DescriptorListener(const DescriptorListener&) = delete;
  DescriptorListener& operator=(const DescriptorListener&) = delete;
  ~DescriptorListener();

  // Returns the name for Exchange() in other processes.
  const std::string& name() const { return options_.name; }

 private:
  struct Sockets {
    Descriptor listening;
    // Readable once the thread must end.
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
