// Connections that gRPC does not close.
//
// gRPC closes a connection when it has written what it had begun to write. A process that is stopped never reads it, so
// that the other side would wait for it for ever, and hold what it was writing from.
#pragma once

#include <cstdint>
#include <string>

namespace slackline::rpc {

// Where a server of this process listens.
struct Listening {
  uint16_t port = 0;
  // Abstract name of a Unix socket; empty when there is none.
  std::string socket;
};

// Both break connections of this process both ways, and return how many. Whoever uses them sees an error.
//
// All that came in there.
int CutConnectionsFrom(const Listening& listening);
// All that lead to `peer`, as grpc::ClientContext::peer() names it. One that other calls share is broken for them, too.
int CutConnectionsTo(const std::string& peer);

}  // namespace slackline::rpc
