// `slackline placement`: what would run where, without running it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "job.pb.h"
#include "scheduler/node_plan.h"

namespace slackline::cli::slurm {

struct PlacementOptions {
  std::string job_file;
  std::vector<std::string> overrides;
  // Names as SLURM writes them, "n[1-4]"; empty: those of the allocation that this runs in.
  std::string nodes;
  // So many nodes of which nothing is known, instead.
  uint32_t count = 0;
};

// What the job has to be dealt out to nodes.
scheduler::Processes ProcessesOf(const job::Job& job);

// Prints a table; returns the exit code.
int ShowPlacement(const PlacementOptions& options);

// Nodes of lines "NAME CPUS GRES", as sinfo writes them with "%N %c %G"; each once, in the order of the lines.
std::vector<scheduler::Node> ParseNodes(const std::string& text);
// Which of the names, one a line, are none of `known`.
std::vector<std::string> UnknownNodes(const std::string& wanted, const std::vector<scheduler::Node>& known);
// Of lines "SwitchName=leaf1 Level=0 ... Nodes=n[1-2] ...", as `scontrol show topology` writes them: the nodes of each
// switch that has some itself, as SLURM writes their names.
std::map<std::string, std::string> ParseLeafSwitches(const std::string& text);

}  // namespace slackline::cli::slurm
