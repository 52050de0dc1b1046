// The job file's section `security`: which settings go together, and whose files are meant.
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "common/job/job_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slackline::job_security_test {
namespace {

using testing::HasSubstr;

std::string RefusalOf(const std::string& yaml) { return std::string(ParseJob(yaml, "j.yaml", {}).status().message()); }

TEST(JobSecurity, WithoutItOnlyLoopbackIsListenedOn) {
  const std::string ways_out =
      "allowed is loopback (127.0.0.1), or any address together with security.mode: tls, security.mode: token, or, on "
      "a "
      "network that nobody else can reach, security.insecure: true";
  for (const std::string host : {"0.0.0.0", "10.0.0.1", "node1"}) {
    EXPECT_EQ(RefusalOf("network: {listen: " + host + "}\n"),
              "j.yaml:1: network.listen: found '" + host + "' without security; " + ways_out);
  }
  for (const std::string security : {"{mode: tls, folder: a}", "{mode: token, token_file: a}", "{insecure: true}"}) {
    EXPECT_EQ(RefusalOf("network: {listen: 0.0.0.0}\nsecurity: " + security + "\n"), "") << security;
  }
  EXPECT_EQ(RefusalOf("network: {listen: localhost}\n"), "");
}

TEST(JobSecurity, EachModeHasItsOwnSettings) {
  EXPECT_EQ(
      RefusalOf("security: {mode: tls}\n"),
      "j.yaml:1: security.folder: found no text; allowed is the folder of the certificates, with security.mode: tls");
  EXPECT_EQ(
      RefusalOf("security: {mode: token}\n"),
      "j.yaml:1: security.token_file: found no text; allowed is the file with the token, with security.mode: token");
  EXPECT_THAT(
      RefusalOf("security: {folder: a}\n"),
      HasSubstr("security.folder: found a value together with none; allowed is only with security.mode: tls (add "
                "--set security.folder= to take the default back)"));
  EXPECT_THAT(RefusalOf("security: {mode: tls, folder: a, token_file: b}\n"),
              HasSubstr("security.token_file: found a value together with tls"));
  EXPECT_THAT(RefusalOf("security: {mode: token, token_file: b, insecure: true}\n"),
              HasSubstr("security.insecure: found a value together with token"));
}

TEST(JobSecurity, RelativePathsCountFromTheFile) {
  std::string folder = std::filesystem::temp_directory_path() / "slackline-job-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/tls.yaml") << "security: {mode: tls, folder: credentials}\n";
  std::ofstream(folder + "/token.yaml") << "security: {mode: token, token_file: ../token}\n";
  std::ofstream(folder + "/absolute.yaml") << "security: {mode: token, token_file: /run/token}\n";
  std::ofstream(folder + "/none.yaml") << "security: {mode: none}\n";
  EXPECT_EQ(ReadJobFile(folder + "/tls.yaml")->security().folder(), folder + "/credentials");
  EXPECT_EQ(ReadJobFile(folder + "/token.yaml")->security().token_file(),
            std::filesystem::path(folder).parent_path().string() + "/token");
  EXPECT_EQ(ReadJobFile(folder + "/absolute.yaml")->security().token_file(), "/run/token");
  EXPECT_EQ(ReadJobFile(folder + "/none.yaml")->security().folder(), "");
  std::filesystem::remove_all(folder);
}

// Each machine may have its files elsewhere, but all must agree on what protects the job.
TEST(JobSecurity, TheFingerprintCoversTheModeOnly) {
  const auto fingerprint = [](const std::string& yaml) { return Fingerprint(*ParseJob(yaml, "j.yaml", {})); };
  EXPECT_EQ(fingerprint("security: {mode: tls, folder: a}\n"), fingerprint("security: {mode: tls, folder: b}\n"));
  EXPECT_EQ(fingerprint("security: {mode: token, token_file: a}\n"),
            fingerprint("security: {mode: token, token_file: b}\n"));
  EXPECT_EQ(fingerprint("security: {insecure: true}\n"), fingerprint("{}\n"));
  EXPECT_NE(fingerprint("security: {mode: tls, folder: a}\n"), fingerprint("{}\n"));
}

}  // namespace
}  // namespace slackline::job_security_test
