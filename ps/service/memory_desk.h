// Hands out shared memory to workers of the same host, before they open their stream.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/shm/descriptor_listener.h"
#include "ps/service/mailbox.h"
#include "ps/service/shard_table.h"

namespace slackline::ps {

// Socket at which workers of this host ask for the shards' segments.
//
// Thread-safety: const calls are safe.
// Threads:       one (DescriptorListener's).
// Ownership:     borrows mailbox and table; only the sequencer touches the table.
class MemoryDesk {
 public:
  // `timeout`: for a worker to send its request, and for the sequencer to answer.
  //   kUnavailable, ...  the system has no such sockets
  static absl::StatusOr<std::unique_ptr<MemoryDesk>> Open(Mailbox& mailbox, ShardTable& table, absl::Duration timeout);

  // Name of the socket, for shm::Exchange() in a worker.
  const std::string& name() const { return listener_->name(); }

 private:
  MemoryDesk(Mailbox& mailbox, ShardTable& table, absl::Duration timeout)
      : mailbox_(mailbox), table_(table), timeout_(timeout) {}
  absl::StatusOr<shm::DescriptorReply> Serve(shm::DescriptorMessage request);

  Mailbox& mailbox_;
  ShardTable& table_;
  const absl::Duration timeout_;
  std::unique_ptr<shm::DescriptorListener> listener_;
};

}  // namespace slackline::ps
