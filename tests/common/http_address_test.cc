#include "common/http/http_address.h"

#include <gtest/gtest.h>

#include <string>

namespace slackline::http_address_test {
namespace {

std::string Http(const std::string& rest) { return kHttpPrefix + rest; }
std::string Refusal(const std::string& rest) { return std::string(CheckServerAddress(Http(rest)).message()); }

constexpr char kAllowed[] =
    "; allowed is an address such as https://files.example.org/FOLDER, or one with http:// or ftp://";

TEST(HttpAddress, FoldersOfServersAreUnderstood) {
  for (const std::string rest : {"files.example.org", "files.example.org/", "files.example.org:8000/a/b-c_d~e.f",
                                 "10.0.0.1:1/x", "[::1]/x", "[2001:db8::1]:65535/x", "[fe80::1%25eth0]:80/x",
                                 "node_1/a%20b/%C3%A4", "host./x", "h\xc3\xb6st/\xc3\xa4", "host/a@b:c;d=e&f"}) {
    EXPECT_EQ(CheckServerAddress(Http(rest)), absl::OkStatus()) << rest;
  }
}

TEST(HttpAddress, ThereIsAHostAndMaybeAPort) {
  for (const std::string rest : {"", "/folder", ":80/folder", "?x", "#x"}) {
    EXPECT_EQ(Refusal(rest), "found '" + Http(rest) + "' without a host" + kAllowed);
  }
  const std::string ports = "; allowed is 1 to 65535, or none, which is the usual one";
  for (const std::string port : {"", "0", "65536", "99999999999", "80a", "-1", "+80", "80:80"}) {
    const std::string rest = "host:" + port + "/x";
    EXPECT_EQ(Refusal(rest), "found the port '" + port + "' in '" + Http(rest) + "'" + ports);
  }
  for (const std::string host :
       {"a b", "1.2.3.4.5", "999.1.1.1", ".host", "-host", "a..b", "[::1", "[host]", "[]", "<host>", "[::1]x"}) {
    EXPECT_EQ(Refusal(host + "/x"), "found the host '" + host + "' in '" + Http(host) +
                                        "/x'; allowed is a name (files.example.org), an IPv4 address (192.0.2.1) or an "
                                        "IPv6 address in brackets ([2001:db8::1])");
  }
}

TEST(HttpAddress, WhatStandsBehindIsAFolder) {
  EXPECT_EQ(Refusal("host/x?version=1"), "found a query ('?') in '" + Http("host/x?version=1'") + kAllowed +
                                             ", whose files are asked for by their names; in a name ? is %3F");
  EXPECT_EQ(Refusal("host#part"), "found a fragment ('#') in '" + Http("host#part'") + kAllowed +
                                      ", whose files are asked for by their names; in a name # is %23");
  EXPECT_EQ(Refusal("host/a b"), "found a space in '" + Http("host/a b'; allowed is %20 in its place"));
  EXPECT_EQ(Refusal("host/a\nb"),
            "found '\\n' in '" + Http("host/a\\nb'; allowed is letters, digits and signs, others as %XX"));
  for (const std::string code : {"%", "%4", "%zz"}) {
    EXPECT_EQ(Refusal("host/" + code), "found '" + code + "' in '" + Http("host/" + code) +
                                           "'; allowed is % with two hexadecimal digits; the sign itself is %25");
  }
}

TEST(HttpAddress, APasswordIsNotShown) {
  for (const std::string user : {"me:secret", "me:sec@ret", "secret", ""}) {
    EXPECT_EQ(Refusal(user + "@host:80/x"), "found a user before '@' in '" + Http("...@host:80/x'") + kAllowed +
                                                ": nobody logs in there, and job files are kept with runs");
  }
}

TEST(HttpAddress, FileServersHaveOneOfThreeProtocols) {
  for (const std::string server : {"http://localhost", "https://localhost:8443/x", "ftp://h/x"}) {
    EXPECT_TRUE(IsFileServer(server)) << server;
    EXPECT_EQ(CheckServerAddress(server), absl::OkStatus()) << server;
  }
  for (const std::string other : {"ftps://h", "s3://h", "HTTPS://h", "/data", "https:/h", ""}) {
    EXPECT_FALSE(IsFileServer(other)) << other;
  }
  EXPECT_TRUE(IsHttps("https://localhost"));
  EXPECT_FALSE(IsHttps("http://localhost"));
  EXPECT_EQ(CheckServerAddress("ftp://me:secret@h/x").message(),
            std::string("found a user before '@' in 'ftp://...@h/x'") + kAllowed +
                ": nobody logs in there, and job files are kept with runs");
}

TEST(HttpAddress, AddressesAreToldFromFolders) {
  for (const std::string address : {"s3://bucket/x", "http:/x", "http:x", "Https:x", "file:///x", "HTTP://[::1]/x"}) {
    EXPECT_TRUE(IsAddress(address)) << address;
  }
  for (const std::string folder : {"", "/a", "a", "./s3://x", "/data/a://b", "a:b", "httpd/x"}) {
    EXPECT_FALSE(IsAddress(folder)) << folder;
  }
}

}  // namespace
}  // namespace slackline::http_address_test
