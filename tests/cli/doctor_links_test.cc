// Links between the nodes of an allocation: which ones are measured, what the results mean, and the peers that measure
// a link.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/time/clock.h"
#include "cli/doctor/links.h"
#include "cli/doctor/peer.h"
#include "common/job/job_file.h"

namespace slackline::cli::doctor::doctor_links_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;

constexpr char kToken[] = "0123456789abcdef";

TEST(ChooseLinks, OfFewNodesEachPairIsMeasuredAlone) {
  for (size_t nodes = 2; nodes <= kAllPairsMax; ++nodes) {
    std::set<std::pair<size_t, size_t>> pairs;
    for (const LinkRound& round : ChooseLinks(nodes, 1)) {
      ASSERT_EQ(round.size(), 1u);
      EXPECT_NE(round[0].one, round[0].other);
      pairs.insert(std::minmax(round[0].one, round[0].other));
    }
    EXPECT_EQ(pairs.size(), nodes * (nodes - 1) / 2);
  }
}

TEST(ChooseLinks, OfManyNodesEachIsInARingAndInOneLinkAtATime) {
  for (const size_t nodes : {size_t{9}, size_t{10}, size_t{101}, size_t{1000}}) {
    const std::vector<LinkRound> rounds = ChooseLinks(nodes, nodes);
    EXPECT_LE(rounds.size(), 5u) << nodes;
    std::set<std::pair<size_t, size_t>> pairs;
    size_t count = 0;
    for (const LinkRound& round : rounds) {
      std::set<size_t> busy;
      for (const NodePair& pair : round) {
        EXPECT_TRUE(busy.insert(pair.one).second && busy.insert(pair.other).second) << nodes;
        pairs.insert(std::minmax(pair.one, pair.other));
        ++count;
      }
    }
    EXPECT_EQ(pairs.size(), count) << "each once";
    for (size_t i = 0; i < nodes; ++i) EXPECT_TRUE(pairs.contains(std::minmax(i, (i + 1) % nodes))) << i;
    EXPECT_GT(count, nodes + nodes / 2) << "and more than the ring";
  }
}

class LinksTest : public ::testing::Test {
 protected:
  // Of n1 to n4: each pair with 1000 MB/s and 60 us.
  LinksTest() {
    for (const LinkRound& round : ChooseLinks(4, 1)) {
      links_.push_back(
          {"n" + std::to_string(round[0].one + 1),
           "n" + std::to_string(round[0].other + 1),
           {.round_trip = absl::Microseconds(60), .to_mb_per_s = 1100, .from_mb_per_s = 1000, .clock_ahead = {}},
           absl::OkStatus()});
    }
    load_.parameters.reset();
  }
  Findings Check() const { return CheckLinks(links_, 4, job_, load_); }
  MeasuredLink& Between(const std::string& one, const std::string& other) {
    return *std::find_if(links_.begin(), links_.end(),
                         [&](const MeasuredLink& link) { return link.one == one && link.other == other; });
  }
  static auto Is(Level level, const std::string& check, const std::string& found) {
    return AllOf(Field("level", &Finding::level, level), Field("check", &Finding::check, check),
                 Field("found", &Finding::found, HasSubstr(found)));
  }
  static auto Advises(const std::string& what) { return Field("advice", &Finding::advice, HasSubstr(what)); }

  std::vector<MeasuredLink> links_;
  job::Job job_ = Resolve(job::Job());
  Load load_;
};

TEST_F(LinksTest, TheMedianAndTheSlowestAreNamed) {
  Between("n2", "n4").facts.from_mb_per_s = 900;
  Between("n1", "n3").facts.round_trip = absl::Microseconds(90);
  EXPECT_THAT(Check(), ElementsAre(Is(Level::kOk, "links",
                                      "6 pairs of 4 nodes (all, one after the other): median 1000 MB/s, 60 us there "
                                      "and back; slowest n2 - n4 with 900 MB/s, 60 us; longest round trip n1 - n3 "
                                      "with 90 us")));
  load_.parameters = 225000000;
  EXPECT_THAT(Check(), ElementsAre(Is(Level::kOk, "links", "in fp32 (900.0 MB) takes 1.0 s of the slowest")));
}

TEST_F(LinksTest, ALinkFarBelowTheMedianIsNamed) {
  Between("n2", "n4").facts.to_mb_per_s = 110;
  EXPECT_THAT(Check(), Contains(AllOf(Is(Level::kWarning, "slow links", "n2 - n4 110 MB/s"), Advises("ethtool"))));
}

TEST_F(LinksTest, ANodeThatAllSlowLinksShareIsNamed) {
  for (const char* other : {"n1", "n2"}) Between(other, "n3").facts.to_mb_per_s = 110;
  EXPECT_THAT(Check(), Contains(AllOf(Is(Level::kWarning, "slow links", "n1 - n3 110 MB/s, n2 - n3 110 MB/s"),
                                      Advises("--exclude=n3"))));
  Between("n1", "n4").facts.to_mb_per_s = 100;
  EXPECT_THAT(Check(), Contains(AllOf(Is(Level::kWarning, "slow links", "n1 - n4 100 MB/s"),
                                      Field("advice", &Finding::advice, ::testing::Not(HasSubstr("--exclude=n"))))));
}

TEST_F(LinksTest, LongRoundTripsAreNamedAndThoseBeyondHeartbeatsAreProblems) {
  Between("n1", "n2").facts.round_trip = absl::Milliseconds(2);
  EXPECT_THAT(Check(), Contains(Is(Level::kWarning, "far links", "n1 - n2 2000 us")));
  Between("n1", "n2").facts.round_trip = absl::Milliseconds(200);
  EXPECT_THAT(Check(), Contains(AllOf(Is(Level::kProblem, "links", "n1 - n2 with 200.0 ms"), Advises("heartbeat_ms"))));
}

TEST_F(LinksTest, PairsThatDoNotReachEachOtherAreProblems) {
  for (const char* other : {"n1", "n2"}) Between(other, "n3").status = absl::UnavailableError("cannot connect to n3");
  EXPECT_THAT(Check(), AllOf(Contains(AllOf(Is(Level::kProblem, "links",
                                               "2 of 6 pairs do not reach each other: n1 - n3: cannot connect to n3"),
                                            Advises("--exclude=n3"))),
                             Contains(Is(Level::kOk, "links", "4 pairs of 4 nodes"))));
}

// A doctor on a node, in a thread of its own, and the end that asks it.
class Node {
 public:
  explicit Node(const std::string& token = kToken) : token_(token) {
    const absl::StatusOr<Socket> desk = Socket::Listen("127.0.0.1");
    EXPECT_TRUE(desk.ok()) << desk.status();
    answers_ = std::thread([this, address = desk->Address()] {
      const absl::StatusOr<Socket> listener = Socket::Listen("127.0.0.1");
      const absl::StatusOr<Socket> socket = Socket::Connect(address, deadline_);
      ended_ =
          socket.ok() && listener.ok() ? AnswerLink(*socket, {"", token_, &*listener}, deadline_) : socket.status();
    });
    absl::StatusOr<Socket> asks = desk->Accept(deadline_);
    EXPECT_TRUE(asks.ok()) << asks.status();
    asks_.push_back(*std::move(asks));
  }
  ~Node() {
    EXPECT_TRUE(EndLink(socket(), deadline_).ok());
    answers_.join();
    EXPECT_TRUE(ended_.ok()) << ended_;
  }
  const Socket& socket() const { return asks_.front(); }
  std::string Where() const { return *AskWhere(socket(), deadline_); }

 private:
  const absl::Time deadline_ = absl::Now() + absl::Seconds(60);
  const std::string token_;
  absl::Status ended_;
  std::vector<Socket> asks_;  // one
  std::thread answers_;
};

TEST(Pairs, AreMeasuredBetweenThePeersThemselves) {
  Node guest, host;
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(BeginPair(guest.socket(), host.socket(), host.Where(), deadline).ok());
    const absl::StatusOr<LinkFacts> link = EndPair(guest.socket(), host.socket(), deadline);
    ASSERT_TRUE(link.ok()) << link.status();
    EXPECT_GT(link->round_trip, absl::ZeroDuration());
    EXPECT_LT(link->round_trip, absl::Seconds(1));
    EXPECT_GT(link->to_mb_per_s, 1);
    EXPECT_GT(link->from_mb_per_s, 1);
  }
}

TEST(Pairs, AStrangerIsPassedOver) {
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  Node guest, host;
  const absl::StatusOr<Socket> stranger = Socket::Connect(host.Where(), deadline);
  ASSERT_TRUE(stranger.ok()) << stranger.status();
  ASSERT_TRUE(stranger->Send("fedcba9876543210", kTokenBytes, deadline).ok());
  ASSERT_TRUE(BeginPair(guest.socket(), host.socket(), host.Where(), deadline).ok());
  const absl::StatusOr<LinkFacts> link = EndPair(guest.socket(), host.socket(), deadline);
  EXPECT_TRUE(link.ok()) << link.status();
}

TEST(Pairs, AnAddressThatNobodyListensAtIsSaid) {
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  Node guest;
  std::string nowhere;
  {
    const absl::StatusOr<Socket> gone = Socket::Listen("127.0.0.1");
    ASSERT_TRUE(gone.ok()) << gone.status();
    nowhere = gone->Address();
  }
  const absl::StatusOr<Socket> listener = Socket::Listen("127.0.0.1");
  ASSERT_TRUE(listener.ok()) << listener.status();
  const absl::StatusOr<Socket> waits = Socket::Connect(listener->Address(), deadline);
  const absl::StatusOr<Socket> host = listener->Accept(deadline);
  ASSERT_TRUE(waits.ok() && host.ok());
  ASSERT_TRUE(BeginPair(guest.socket(), *host, nowhere, deadline).ok());
  // As a host says that nobody has come.
  ASSERT_TRUE(waits->Send("e\0\0\0\6nobody", 11, deadline).ok());
  EXPECT_THAT(std::string(EndPair(guest.socket(), *host, deadline).status().message()),
              HasSubstr("cannot connect to " + nowhere));
}

}  // namespace
}  // namespace slackline::cli::doctor::doctor_links_test
