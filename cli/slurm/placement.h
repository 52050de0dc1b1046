// `slackline placement`: shows which processes would run on which node, without running them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/slurm/node_plan.h"
#include "job.pb.h"

namespace slackline::cli::slurm {

struct PlacementOptions {
  std::string job_file;
  std::vector<std::string> overrides;
  // Names of the nodes as SLURM writes them, "n[1-4]". Empty: nodes of the allocation in which this program runs.
  std::string nodes;
  // Number of nodes without known properties, to use instead of `nodes`; 0: none.
  uint32_t count = 0;
};

// Returns the processes of the job that are distributed over nodes.
Processes ProcessesOf(const job::Job& job);

// Prints a table; returns the exit code.
int ShowPlacement(const PlacementOptions& options);

// Parses lines "NAME CPUS GRES", the output of sinfo with "%N %c %G". Returns each node once, in the order of the
// lines.
std::vector<Node> ParseNodes(const std::string& text);
// Returns the names in `wanted`, one per line, that are not in `known`.
std::vector<std::string> UnknownNodes(const std::string& wanted, const std::vector<Node>& known);
// Parses lines "SwitchName=leaf1 Level=0 ... Nodes=n[1-2] ...", the output of `scontrol show topology`. Returns the
// nodes of each leaf switch (level 0), as SLURM writes their names, by the name of the switch.
std::map<std::string, std::string> ParseLeafSwitches(const std::string& text);

}  // namespace slackline::cli::slurm
