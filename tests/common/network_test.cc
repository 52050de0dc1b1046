// Choice of the address and the ports that a process takes on a machine.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/network/interfaces.h"
#include "common/network/link_speed.h"
#include "common/network/on_this_machine.h"
#include "common/network/ports.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slackline::network::network_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<InterfaceAddress> kHere = {
    {"lo", "127.0.0.1"}, {"eth0", "10.1.2.3"}, {"ib0", "10.20.0.7"}, {"eth0", "[fd00::2]"}};

TEST(Interfaces, AreChosenByInterfaceOrByNetwork) {
  EXPECT_EQ(*Choose(kHere, "ib0"), "10.20.0.7");
  EXPECT_EQ(*Choose(kHere, "10.20.0.0/16"), "10.20.0.7");
  EXPECT_EQ(*Choose(kHere, "10.1.2.0/23"), "10.1.2.3");
  EXPECT_EQ(*Choose(kHere, "0.0.0.0/0"), "127.0.0.1");
  EXPECT_EQ(*Choose(kHere, "fd00::/8"), "[fd00::2]");
}

TEST(Interfaces, OthersAreRefusedByName) {
  const auto unknown = Choose(kHere, "ib1");
  EXPECT_TRUE(absl::IsNotFound(unknown.status()));
  EXPECT_THAT(unknown.status().message(),
              HasSubstr("found no network interface ib1; here are lo (127.0.0.1), eth0 (10.1.2.3)"));
  EXPECT_TRUE(absl::IsNotFound(Choose(kHere, "192.168.0.0/16").status()));
  for (const char* wrong : {"10.1.2.0/33", "10.1.2/8", "/8", "10.1.2.0/", "10.1.2.0/8/8", "fd00::/129", "10.1.2.0/+8",
                            "a b", "", "an-interface-with-a-long-name"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Choose(kHere, wrong).status())) << wrong;
  }
}

TEST(Interfaces, ThisMachineHasLoopback) {
  const auto here = InterfaceAddresses();
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_EQ(*Choose(*here, "127.0.0.0/8"), "127.0.0.1");
  EXPECT_EQ(*AddressOfNode("no-such-node", "127.0.0.0/8"), "127.0.0.1");
}

class LinkSpeed : public testing::Test {
 protected:
  LinkSpeed() {
    std::string folder = (std::filesystem::temp_directory_path() / "slackline-XXXXXX").string();
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    classes_ = folder;
  }
  ~LinkSpeed() override { std::filesystem::remove_all(classes_); }

  uint32_t Speed(const std::string& host, const std::string& said) {
    std::filesystem::create_directories(classes_ / "ib0");
    std::ofstream(classes_ / "ib0" / "speed") << said;
    return LinkMbit(host, {{"lo", "127.0.0.1"}, {"ib0", "10.1.2.3"}}, classes_);
  }

  std::filesystem::path classes_;
};

TEST_F(LinkSpeed, IsThatOfTheInterfaceOfTheAddress) {
  EXPECT_EQ(Speed("10.1.2.3", "100000\n"), 100'000u);
  EXPECT_EQ(Speed("10.1.2.4", "100000\n"), 0u);
}

TEST_F(LinkSpeed, IsNotKnownWhereTheInterfaceDoesNotSayOrItIsLoopback) {
  for (const char* const said : {"-1\n", "", "fast\n", "99999999999999\n"})
    EXPECT_EQ(Speed("10.1.2.3", said), 0u) << said;
  EXPECT_EQ(Speed("127.0.0.1", "100000\n"), 0u);
  EXPECT_EQ(LinkMbit("10.1.2.3", {{"ib1", "10.1.2.3"}}, classes_), 0u);
}

TEST(OnThisMachine, AnInterfaceBecomesItsAddress) {
  job::Network network;
  network.set_interface("127.0.0.0/8");
  network.set_ports("40000-40001");
  const auto settled = OnThisMachine(network);
  ASSERT_TRUE(settled.ok()) << settled.status();
  EXPECT_EQ(settled->listen(), "127.0.0.1");
  EXPECT_EQ(settled->interface(), "");
  EXPECT_EQ(settled->advertise(), "");
  EXPECT_EQ(settled->ports(), "40000-40001");
}

TEST(OnThisMachine, WithoutAnInterfaceNothingChanges) {
  job::Network network;
  network.set_listen("0.0.0.0");
  network.set_advertise("node1");
  const auto settled = OnThisMachine(network);
  ASSERT_TRUE(settled.ok()) << settled.status();
  EXPECT_EQ(settled->listen(), "0.0.0.0");
  EXPECT_EQ(settled->advertise(), "node1");
}

TEST(OnThisMachine, AnInterfaceThatIsNotThereIsNamedWithThoseThatAre) {
  job::Network network;
  network.set_interface("no-such-one");
  const absl::Status status = OnThisMachine(network).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(status.message(), HasSubstr("network.interface: found no network interface no-such-one; here are "));
  EXPECT_THAT(status.message(), HasSubstr("(127.0.0.1)"));
}

TEST(PortRange, IsTwoPortsTheLowerOneFirst) {
  EXPECT_EQ(ParsePortRange("40000-40199")->size(), 200u);
  EXPECT_EQ(ParsePortRange("7-7")->low, 7);
  EXPECT_EQ(ParsePortRange("1-65535")->high, 65535);
  for (const char* wrong :
       {"", "-", "7", "7-", "-7", "8-7", "0-7", "7-65536", "7-8-9", "a-b", "7 - 8", "+7-8", "7-99999999999"}) {
    const absl::Status status = ParsePortRange(wrong).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << wrong;
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("found '", wrong, "'; allowed is LOW-HIGH"))) << wrong;
  }
}

// Listens on a port of loopback as long as it lives.
class Listener {
 public:
  explicit Listener(uint16_t port = 0) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    good_ = ::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 && ::listen(socket_, 1) == 0;
    socklen_t size = sizeof(address);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() { ::close(socket_); }

  bool good() const { return good_; }
  uint16_t port() const { return port_; }

 private:
  const int socket_;
  bool good_ = false;
  uint16_t port_ = 0;
};

TEST(TakePort, PassesOverThoseThatSomebodyListensOn) {
  const Listener taken;
  ASSERT_TRUE(taken.good());
  std::vector<uint16_t> asked;
  const PortRange only{taken.port(), taken.port()};
  const auto none = TakePort("127.0.0.1", only, 3, [&](uint16_t port) {
    asked.push_back(port);
    return absl::OkStatus();
  });
  EXPECT_TRUE(absl::IsResourceExhausted(none.status())) << none.status();
  EXPECT_EQ(none.status().message(),
            absl::StrCat("found no free port on 127.0.0.1: all 1 of network.ports (", taken.port(), "-", taken.port(),
                         ") were tried; allowed is a range with one that nobody uses"));
  EXPECT_THAT(asked, ElementsAre());
}

TEST(CountFreePorts, CountsThoseThatNobodyListensOn) {
  const Listener taken;
  ASSERT_TRUE(taken.good());
  const auto none = CountFreePorts("127.0.0.1", {taken.port(), taken.port()}, 3);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(*none, 0u);
  const auto enough = CountFreePorts("127.0.0.1", {20000, 60000}, 3);
  ASSERT_TRUE(enough.ok()) << enough.status();
  EXPECT_EQ(*enough, 3u);
  EXPECT_TRUE(absl::IsUnavailable(CountFreePorts("192.0.2.1", {40000, 40009}, 3).status()));
}

TEST(TakePort, GoesRoundFromWhereItBegins) {
  // Whoever is asked is not free: the one that is asked takes it, and says that somebody else was faster. Other
  // programs of this machine may be in between: then once more, elsewhere.
  uint16_t low = 0;
  std::vector<uint16_t> asked;
  absl::StatusOr<uint16_t> none = absl::UnknownError("not tried");
  for (bool alone = false; !alone;) {
    const Listener somewhere;
    low = somewhere.port() > 60000 ? somewhere.port() - 8 : somewhere.port();
    const PortRange range{low, static_cast<uint16_t>(low + 7)};
    std::vector<std::unique_ptr<Listener>> faster;
    asked.clear();
    alone = true;
    none = TakePort("127.0.0.1", range, 5, [&](uint16_t port) {
      asked.push_back(port);
      faster.push_back(std::make_unique<Listener>(port));
      alone = alone && faster.back()->good();
      return absl::UnavailableError("taken");
    });
  }
  EXPECT_TRUE(absl::IsResourceExhausted(none.status())) << none.status();
  EXPECT_EQ(std::set<uint16_t>(asked.begin(), asked.end()).size(), asked.size());
  for (size_t i = 0; i + 1 < asked.size(); ++i) {
    const auto place = [&](uint16_t port) { return (port - low + 8 - 5) % 8; };
    EXPECT_LT(place(asked[i]), place(asked[i + 1]));
  }
}

TEST(TakePort, WhatIsWrongWithAFreePortIsSaid) {
  uint16_t port = 0;
  { port = Listener().port(); }
  int asked = 0;
  const auto refused = TakePort("127.0.0.1", {port, port}, 0, [&](uint16_t) {
    ++asked;
    return absl::InternalError("out of order");
  });
  EXPECT_EQ(refused.status(), absl::InternalError("out of order"));
  EXPECT_EQ(asked, 3);
}

TEST(TakePort, APortThatSomebodyHadForAMomentIsTakenAllTheSame) {
  uint16_t port = 0;
  { port = Listener().port(); }
  int asked = 0;
  const auto taken = TakePort("127.0.0.1", {port, port}, 0, [&](uint16_t) {
    return ++asked == 1 ? absl::UnavailableError("taken") : absl::OkStatus();
  });
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(*taken, port);
}

TEST(TakePort, AnAddressOfAnotherMachineIsNamed) {
  const auto refused = TakePort("192.0.2.1", {40000, 40009}, 0, [](uint16_t) { return absl::OkStatus(); });
  EXPECT_TRUE(absl::IsUnavailable(refused.status()));
  EXPECT_THAT(refused.status().message(), HasSubstr("cannot listen on 192.0.2.1:40000: "));
}

struct Server {
  std::string address;
};

TEST(StartServer, APortThatIsNamedWinsOverTheRange) {
  const auto start = [](const std::string& address) -> absl::StatusOr<std::unique_ptr<Server>> {
    return std::make_unique<Server>(Server{address});
  };
  uint16_t port = 0;
  { port = Listener().port(); }
  const std::string ports = absl::StrCat(port, "-", port);
  EXPECT_EQ((*StartServer<Server>("127.0.0.1:7", ports, start))->address, "127.0.0.1:7");
  EXPECT_EQ((*StartServer<Server>("127.0.0.1:0", ports, start))->address, absl::StrCat("127.0.0.1:", port));
  EXPECT_EQ((*StartServer<Server>("127.0.0.1:0", "", start))->address, "127.0.0.1:0");
}

}  // namespace
}  // namespace slackline::network::network_test
