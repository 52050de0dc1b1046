// Training scripts of a node that are one worker (worker.node_group).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace slackline::cli {

// First argument of `slackline` that makes it the parent of such scripts. Not a command for people.
inline constexpr char kNodeScripts[] = "node-scripts";

// Starts `scripts` processes of `command`, each with its part of the machine and the private folder in which they meet,
// passes signals on to them, and waits until all have ended. Each of their lines goes to standard output as a whole,
// behind the script's local rank. Once one has failed, the others have some seconds to end by themselves. Returns the
// exit code: kExitFailed if a process has failed, which the last line of the log names, with its exception.
int RunNodeScripts(uint32_t scripts, const std::vector<std::string>& command);

}  // namespace slackline::cli
