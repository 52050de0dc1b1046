// Which machine this process runs on.
#pragma once

#include <string>

namespace slackline::shm {

// Equal in two processes exactly when they can reach each other's abstract sockets: the same boot of the same kernel,
// and the same network namespace (containers on one machine usually have their own). Empty when it cannot be known;
// an empty identity equals no other.
std::string HostIdentity();

}  // namespace slackline::shm
