// The job file's section `network`: which settings go together.
#include "common/job/job_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slackline::job_network_test {
namespace {

using testing::HasSubstr;

std::string NetworkRefusal(const std::string& network) {
  return std::string(ParseJob("network: " + network + "\n", "j.yaml", {}).status().message());
}

TEST(JobNetwork, AnInterfaceTakesThePlaceOfListenAndAdvertise) {
  for (const char* allowed :
       {"{interface: ib0}", "{interface: 10.20.0.0/16}", "{interface: 'fd00::/8', listen: 127.0.0.1}",
        "{interface: '', listen: 127.0.0.2, advertise: node1}"}) {
    EXPECT_EQ(NetworkRefusal(allowed), "") << allowed;
  }
  EXPECT_EQ(NetworkRefusal("{interface: ib0, listen: 127.0.0.2}"),
            "j.yaml:1: network.listen: found a value together with network.interface; allowed is only with "
            "network.interface: \"\" (add --set network.listen=127.0.0.1 to take the default back)");
  EXPECT_EQ(NetworkRefusal("{interface: ib0, advertise: node1}"),
            "j.yaml:1: network.advertise: found a value together with network.interface; allowed is only with "
            "network.interface: \"\" (add --set network.advertise= to take the default back)");
}

TEST(JobNetwork, IPv6IsInBrackets) {
  EXPECT_EQ(NetworkRefusal("{listen: '[::1]'}"), "");
  EXPECT_EQ(NetworkRefusal("{listen: '::1'}"),
            "j.yaml:1: network.listen: found '::1'; allowed is an IPv4 address, a name, or an IPv6 address in brackets "
            "([::1])");
}

TEST(JobNetwork, WhatIsNoHostIsRefused) {
  for (const std::string wrong : {"a b", "node1:80", "http:/x", "::1", "[::1"}) {
    EXPECT_EQ(NetworkRefusal("{advertise: '" + wrong + "'}"),
              "j.yaml:1: network.advertise: found '" + wrong +
                  "'; allowed is a name or an address without a port; an IPv6 address stands in brackets "
                  "([::1])");
  }
  EXPECT_THAT(NetworkRefusal("{listen: 'a b'}"),
              HasSubstr("j.yaml:1: network.listen: found 'a b'; allowed is an IPv4 address, or a name"));
}

TEST(JobNetwork, WhatCanBeNoInterfaceIsRefused) {
  for (const std::string wrong : {"10.20.0.0/33", "10.20/16", "a b"}) {
    EXPECT_EQ(NetworkRefusal("{interface: '" + wrong + "'}"),
              "j.yaml:1: network.interface: found '" + wrong +
                  "'; allowed is the name of a network interface (ib0), or a network such as 10.1.0.0/16");
  }
}

TEST(JobNetwork, PortsAreARangeTheLowerOneFirst) {
  EXPECT_EQ(NetworkRefusal("{ports: 40000-40199}"), "");
  for (const std::string wrong : {"40199-40000", "40000", "0-7", "7-65536", "x-y"}) {
    EXPECT_THAT(NetworkRefusal("{ports: '" + wrong + "'}"),
                HasSubstr("network.ports: found '" + wrong + "'; allowed is LOW-HIGH, two ports from 1 to 65535"));
  }
}

TEST(JobNetwork, WithEveryDefaultWrittenOutItIsStillValid) {
  const auto job = ParseJob("network: {interface: ib0, ports: 40000-40199}\n", "j.yaml", {});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(ParseJob(ToYaml(Resolve(*job)), "again.yaml", {}).ok());
  // What a launcher that knows the address says beside it.
  const auto placed = ParseJob(ToYaml(Resolve(*job)), "again.yaml",
                               {"network.interface=", "network.listen=127.0.0.2", "network.advertise=127.0.0.2"});
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_EQ(placed->network().listen(), "127.0.0.2");
}

}  // namespace
}  // namespace slackline::job_network_test
