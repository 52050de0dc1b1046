// The identity by which processes know that they can reach each other by sockets of one machine.
#pragma once

#include <string>

namespace slackline::shm {

// Returns a text that is equal in two processes exactly if they can reach each other's abstract sockets: the same boot
// of the same kernel, and the same network namespace (containers on one machine usually have their own). Empty if
// unknown; an empty identity equals no other.
std::string SocketScope();

}  // namespace slackline::shm
