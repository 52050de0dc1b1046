// Closes connections that gRPC does not close.
//
// gRPC closes a connection only after writing what it has begun to write. A stopped process never reads those bytes, so
// the other side would wait forever and hold the memory that it writes from.
#pragma once

#include <cstdint>
#include <string>

namespace slackline::rpc {

// Addresses on which a server of this process listens.
struct Listening {
  uint16_t port = 0;
  // Abstract name of a Unix socket; empty if there is none.
  std::string socket;
};

// CutConnectionsFrom() and CutConnectionsTo() break connections of this process in both directions and return their
// number. Users of such a connection see an error.
//
// Breaks all connections that arrived at `listening`.
int CutConnectionsFrom(const Listening& listening);
// Breaks all connections that lead to `peer`, as grpc::ClientContext::peer() names it. Other calls on such a connection
// break too.
int CutConnectionsTo(const std::string& peer);

}  // namespace slackline::rpc
