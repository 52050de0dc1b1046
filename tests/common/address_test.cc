#include "common/base/address.h"

#include <string>

#include <gtest/gtest.h>

namespace slackline::address_test {
namespace {

TEST(AddressMistake, HostAndPortAreAllowed) {
  for (const std::string text : {"127.0.0.1:7000", "node-1.cluster_a:0", "[::1]:65535"}) {
    EXPECT_EQ(AddressMistake(text), "") << text;
  }
}

TEST(AddressMistake, EverythingElseIsNamed) {
  for (const std::string text : {"", ":", "nonsense", "host:", ":1", "host:x", "host:-1", "host:+1", "host: 1",
                                 "host:65536", "a b:1", "::1:7", "[]:7", "a:b:1"}) {
    EXPECT_EQ(AddressMistake(text), "found '" + text + "'; allowed is HOST:PORT");
  }
}

TEST(IsLoopback, IsWhatStaysOnTheMachine) {
  for (const std::string host : {"127.0.0.1", "127.9.8.7", "localhost", "::1", "[::1]"})
    EXPECT_TRUE(IsLoopback(host)) << host;
  for (const std::string host : {"", "0.0.0.0", "::", "[::]", "10.0.0.1", "127.0.0", "127.0.0.256", "127.0.0.1.example",
                                 "1127.0.0.1", "node1", "localhost.example", "127.0.0.1x", "128.0.0.1"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

TEST(HostOf, IsWhatStandsBeforeThePort) {
  EXPECT_EQ(HostOf("node1:70"), "node1");
  EXPECT_EQ(HostOf("[::1]:70"), "[::1]");
}

TEST(PlaceMistake, FilesAreAllowedToo) {
  for (const std::string text : {"127.0.0.1:7000", "runs/one/scheduler.address", "./address"}) {
    EXPECT_EQ(PlaceMistake(text), "") << text;
  }
  EXPECT_EQ(PlaceMistake("address"),
            "found 'address'; allowed is HOST:PORT, or a file that holds one, with a '/' in its path");
  EXPECT_EQ(PlaceMistake("/tmp"), "found the folder '/tmp'; allowed is HOST:PORT, or a file that holds one");
}

}  // namespace
}  // namespace slackline::address_test
