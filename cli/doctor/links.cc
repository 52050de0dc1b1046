#include "cli/doctor/links.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/doctor/words.h"
#include "common/job/job_timeouts.h"

namespace slackline::cli::doctor {
namespace {

constexpr char kLinksCheck[] = "links";
// Each is a matching: half as many pairs as there are nodes.
constexpr int kRandomRounds = 2;
// A link with less than this part of the median is named: all workers wait for it where they wait for each other.
constexpr double kSlowPart = 0.5;
// The same of round trips; below the floor it is the noise of the machines.
constexpr double kFarTimes = 5;
constexpr absl::Duration kFarFloor = absl::Milliseconds(1);
constexpr size_t kNamedMax = 4;

using Links = std::vector<const MeasuredLink*>;

double Slower(const LinkFacts& facts) { return std::min(facts.to_mb_per_s, facts.from_mb_per_s); }

std::string LinkName(const MeasuredLink& link) { return absl::StrCat(link.one, " - ", link.other); }

template <typename Value>
Value Median(std::vector<Value> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

std::string NameLinks(const Links& links, double (*figure)(const LinkFacts&), const char* unit) {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(links.size(), kNamedMax); ++i) {
    names.push_back(absl::StrFormat("%s %.0f %s", LinkName(*links[i]), figure(links[i]->facts), unit));
  }
  if (links.size() > kNamedMax) names.push_back(absl::StrCat(links.size() - kNamedMax, " more"));
  return absl::StrJoin(names, ", ");
}

double RoundTripUs(const LinkFacts& facts) { return absl::ToDoubleMicroseconds(facts.round_trip); }

// A node that is in all of them; empty: none is, or it is one link alone.
std::string InCommon(const Links& links) {
  if (links.size() < 2) return "";
  for (const std::string& node : {links.front()->one, links.front()->other}) {
    if (std::all_of(links.begin(), links.end(),
                    [&](const MeasuredLink* link) { return link->one == node || link->other == node; }))
      return node;
  }
  return "";
}

std::string MendLinks(const Links& links) {
  const std::string network =
      "network.interface chooses another network, a job's other nodes are had by sbatch --exclude";
  if (const std::string node = InCommon(links); !node.empty()) {
    return absl::StrCat("look at the network of ", node,
                        ", which all of them share: the speed and errors of its port (",
                        "ethtool INTERFACE, ethtool -S, ibstat), its cable; or leave it out: sbatch --exclude=", node);
  }
  return absl::StrCat("look at what they share: ports (ethtool INTERFACE, ibstat), cables, the switches between; ",
                      network);
}

std::string SumUpLinks(const Links& links, size_t nodes, const Load& load) {
  std::vector<double> rates;
  std::vector<absl::Duration> trips;
  for (const MeasuredLink* link : links) {
    rates.push_back(Slower(link->facts));
    trips.push_back(link->facts.round_trip);
  }
  const MeasuredLink& slowest = **std::min_element(
      links.begin(), links.end(), [](const auto* a, const auto* b) { return Slower(a->facts) < Slower(b->facts); });
  const MeasuredLink& farthest = **std::max_element(links.begin(), links.end(), [](const auto* a, const auto* b) {
    return a->facts.round_trip < b->facts.round_trip;
  });
  std::string said = absl::StrFormat(
      "%d pairs of %d nodes (%s): median %.0f MB/s, %s there and back; slowest %s with %.0f MB/s, %s; longest round "
      "trip %s with %s",
      links.size(), nodes,
      nodes <= kAllPairsMax ? "all, one after the other" : "a ring and pairs by chance, each node in one at a time",
      Median(rates), Time(Median(trips)), LinkName(slowest), Slower(slowest.facts), Time(slowest.facts.round_trip),
      LinkName(farthest), Time(farthest.facts.round_trip));
  if (load.parameters) {
    const double megabytes = 4e-6 * static_cast<double>(*load.parameters);
    absl::StrAppendFormat(&said, "; a push of the whole model in fp32 (%.1f MB) takes %s of the slowest", megabytes,
                          Time(absl::Seconds(megabytes / std::max(1e-3, Slower(slowest.facts)))));
  }
  return said;
}

// As they stand, and pairs that are there already left out.
void AddRounds(const std::vector<LinkRound>& more, std::set<std::pair<size_t, size_t>>& known,
               std::vector<LinkRound>& rounds) {
  for (const LinkRound& round : more) {
    LinkRound fresh;
    for (const NodePair& pair : round) {
      if (known.insert(std::minmax(pair.one, pair.other)).second) fresh.push_back(pair);
    }
    if (!fresh.empty()) rounds.push_back(std::move(fresh));
  }
}

// Every second link of the ring at a time; where the nodes are odd in number, the last one by itself.
std::vector<LinkRound> Ring(size_t nodes) {
  std::vector<LinkRound> rounds(3);
  for (size_t i = 0; i < nodes; ++i) {
    rounds[nodes % 2 == 1 && i + 1 == nodes ? 2 : i % 2].push_back({i, (i + 1) % nodes});
  }
  return rounds;
}

LinkRound RandomMatching(size_t nodes, std::mt19937_64& random) {
  std::vector<size_t> order(nodes);
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  LinkRound round;
  for (size_t i = 0; i + 1 < nodes; i += 2) round.push_back({order[i], order[i + 1]});
  return round;
}

}  // namespace

std::vector<LinkRound> ChooseLinks(size_t nodes, uint64_t seed) {
  std::vector<LinkRound> rounds;
  if (nodes <= kAllPairsMax) {
    for (size_t one = 0; one < nodes; ++one) {
      for (size_t other = one + 1; other < nodes; ++other) rounds.push_back({{one, other}});
    }
    return rounds;
  }
  std::mt19937_64 random(seed);
  std::set<std::pair<size_t, size_t>> known;
  AddRounds(Ring(nodes), known, rounds);
  for (int i = 0; i < kRandomRounds; ++i) AddRounds({RandomMatching(nodes, random)}, known, rounds);
  return rounds;
}

Findings CheckLinks(const std::vector<MeasuredLink>& links, size_t nodes, const job::Job& job, const Load& load) {
  Findings findings;
  Links measured;
  Links broken;
  for (const MeasuredLink& link : links) (link.status.ok() ? measured : broken).push_back(&link);
  if (!broken.empty()) {
    findings.push_back({Level::kProblem, kLinksCheck,
                        absl::StrCat(broken.size(), " of ", links.size(), " pairs do not reach each other: ",
                                     LinkName(*broken.front()), ": ", broken.front()->status.message()),
                        "a connection between any two nodes, at ports that the system chooses (or network.ports)",
                        MendLinks(broken)});
  }
  if (measured.empty()) return findings;
  const std::string summary = SumUpLinks(measured, nodes, load);
  std::vector<double> rates;
  std::vector<double> trips;
  for (const MeasuredLink* link : measured) {
    rates.push_back(Slower(link->facts));
    trips.push_back(RoundTripUs(link->facts));
  }
  const double rate = Median(rates), trip = Median(trips);
  Links slow;
  Links far;
  for (const MeasuredLink* link : measured) {
    if (Slower(link->facts) < kSlowPart * rate) slow.push_back(link);
    if (RoundTripUs(link->facts) > std::max(kFarTimes * trip, absl::ToDoubleMicroseconds(kFarFloor))) {
      far.push_back(link);
    }
  }
  std::sort(slow.begin(), slow.end(), [](const auto* a, const auto* b) { return Slower(a->facts) < Slower(b->facts); });
  std::sort(far.begin(), far.end(),
            [](const auto* a, const auto* b) { return RoundTripUs(a->facts) > RoundTripUs(b->facts); });
  const absl::Duration most = TimeoutsOf(job).heartbeat / 2;
  const absl::Duration longest = (*std::max_element(measured.begin(), measured.end(), [](const auto* a, const auto* b) {
                                   return a->facts.round_trip < b->facts.round_trip;
                                 }))->facts.round_trip;
  if (longest > most) {
    findings.push_back({Level::kProblem, kLinksCheck, summary,
                        absl::StrCat("less than ", Time(most), " there and back (timeouts.heartbeat_ms / 2)"),
                        "a longer timeouts.heartbeat_ms, or nodes that are nearer"});
  } else {
    findings.push_back(Fine(kLinksCheck, summary));
  }
  if (!slow.empty()) {
    findings.push_back({Level::kWarning, "slow links", NameLinks(slow, Slower, "MB/s"),
                        absl::StrFormat("half of the median, %.0f MB/s", kSlowPart * rate), MendLinks(slow)});
  }
  if (!far.empty()) {
    findings.push_back({Level::kWarning, "far links", NameLinks(far, RoundTripUs, "us"),
                        absl::StrFormat("%.0f us there and back, or %.0f times the median",
                                        absl::ToDoubleMicroseconds(kFarFloor), kFarTimes),
                        MendLinks(far)});
  }
  return findings;
}

}  // namespace slackline::cli::doctor
