// Connections that gRPC does not close.
//
// gRPC closes a connection when it has written what it had begun to write. A process that is stopped never reads it,
// so that a server would wait for it for ever.
#pragma once

#include <cstdint>
#include <string>

namespace slackline::ps {

// Where a server of this process listens.
struct Listening {
  uint16_t port = 0;
  // Abstract name of a Unix socket; empty when there is none.
  std::string socket;
};

// Breaks all connections that came in there, both ways, and returns how many. Whoever uses them sees an error.
int CutConnections(const Listening& listening);

}  // namespace slackline::ps
