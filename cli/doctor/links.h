// Links between the nodes of an allocation: which ones to measure, and what the figures mean for all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/doctor/facts.h"
#include "cli/doctor/finding.h"
#include "cli/doctor/load.h"
#include "job.pb.h"

namespace slackline::cli::doctor {

// Two nodes, by their index in a list.
struct NodePair {
  size_t one = 0;
  size_t other = 0;
};

// Pairs that are measured at the same time: no node is in two of them.
using LinkRound = std::vector<NodePair>;

// Largest number of nodes up to which all pairs are measured, one after the other.
inline constexpr size_t kAllPairsMax = 8;

// Returns all pairs for up to kAllPairsMax nodes. For more nodes, returns a ring and random pairs, which take the same
// few rounds however many nodes there are. Each pair occurs once.
std::vector<LinkRound> ChooseLinks(size_t nodes, uint64_t seed);

struct MeasuredLink {
  std::string one;
  std::string other;
  LinkFacts facts;
  // Reason why nothing was measured; `facts` is then empty.
  absl::Status status;
};

// Reports the median, the slowest link by name, the links that are far slower than the others and what they have in
// common, and the links that could not be measured.
Findings CheckLinks(const std::vector<MeasuredLink>& links, size_t nodes, const job::Job& job, const Load& load);

}  // namespace slackline::cli::doctor
