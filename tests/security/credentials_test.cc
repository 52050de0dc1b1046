// Files of credentials: how they are made, and the errors for those that cannot be used.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/security/check_credentials.h"
#include "common/security/files.h"
#include "common/security/make_credentials.h"
#include "common/security/revoked.h"
#include "common/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/security/folder.h"

namespace slackline::security::credentials_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StrEq;

mode_t ModeOf(const std::string& path) {
  struct stat found {};
  EXPECT_EQ(::stat(path.c_str(), &found), 0) << path;
  return found.st_mode & 07777;
}

std::map<std::string, std::string> TextsIn(const std::string& folder) {
  std::map<std::string, std::string> texts;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (!file.is_regular_file()) continue;
    std::ifstream in(file.path());
    texts[file.path().filename()] = {std::istreambuf_iterator<char>(in), {}};
  }
  return texts;
}

void Write(const std::string& path, const std::string& text, mode_t mode = 0600) {
  std::ofstream(path) << text;
  ASSERT_EQ(::chmod(path.c_str(), mode), 0);
}

class CredentialsTest : public testing::Test {
 protected:
  CredentialsTest() {
    folder_ = temporary_.path() + "/credentials";
    EXPECT_TRUE(MakeCredentials(MakeFor(folder_)).ok());
  }

  absl::Status Check(Role role = Role::kWorker, const std::string& job = "first") {
    return CheckPair(folder_, {job, role}, absl::Now());
  }
  void ExpectRefused(const absl::Status& status, absl::StatusCode code, const std::vector<std::string>& words) {
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& word : words) EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
  std::string Key(Role role) const { return PathsOf(folder_, role).key; }
  std::string Certificate(Role role) const { return PathsOf(folder_, role).certificate; }

  const TemporaryFolder temporary_;
  std::string folder_;
};

TEST_F(CredentialsTest, AreTheOwnersAlone) {
  EXPECT_EQ(ModeOf(folder_), 0700);
  const auto texts = TextsIn(folder_);
  EXPECT_EQ(texts.size(), 10u);
  for (const auto& [name, text] : texts) EXPECT_EQ(ModeOf(folder_ + "/" + name), 0600) << name;
}

TEST_F(CredentialsTest, AreRightForEveryRole) {
  for (const Role role : kRoles) EXPECT_TRUE(Check(role).ok()) << Check(role);
}

TEST_F(CredentialsTest, AreNotOverwritten) {
  const auto before = TextsIn(folder_);
  ExpectRefused(MakeCredentials(MakeFor(folder_)), absl::StatusCode::kAlreadyExists,
                {folder_ + "/", "--renew", "--force"});
  // One file that is left is enough.
  for (const Role role : {Role::kScheduler, Role::kServer, Role::kOperator}) {
    std::filesystem::remove(Key(role));
    std::filesystem::remove(Certificate(role));
  }
  std::filesystem::remove(AuthorityKeyPath(folder_));
  std::filesystem::remove(AuthorityPath(folder_));
  ExpectRefused(MakeCredentials(MakeFor(folder_)), absl::StatusCode::kAlreadyExists, {Key(Role::kWorker)});
  EXPECT_EQ(TextsIn(folder_).size(), 2u);
  EXPECT_EQ(TextsIn(folder_)["worker.key"], before.at("worker.key"));
}

TEST_F(CredentialsTest, AreAllReplacedByForce) {
  const auto before = TextsIn(folder_);
  MakeOptions options = MakeFor(folder_);
  options.force = true;
  ASSERT_TRUE(MakeCredentials(options).ok());
  const auto after = TextsIn(folder_);
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [name, text] : after) {
    EXPECT_NE(text, before.at(name)) << name;
    EXPECT_EQ(ModeOf(folder_ + "/" + name), 0600) << name;
  }
  EXPECT_TRUE(Check().ok());
}

TEST_F(CredentialsTest, AreRenewedByTheSameAuthority) {
  const auto before = TextsIn(folder_);
  MakeOptions options = MakeFor(folder_);
  options.renew = true;
  ASSERT_TRUE(MakeCredentials(options).ok());
  for (const auto& [name, text] : TextsIn(folder_)) {
    EXPECT_EQ(text == before.at(name), name == "ca.crt" || name == "ca.key") << name;
  }
  EXPECT_TRUE(Check().ok());
  std::filesystem::remove(AuthorityKeyPath(folder_));
  ExpectRefused(MakeCredentials(options), absl::StatusCode::kNotFound, {AuthorityKeyPath(folder_)});
}

TEST_F(CredentialsTest, AreNotRenewedForAnotherJob) {
  const auto before = TextsIn(folder_);
  MakeOptions options = MakeFor(folder_);
  options.renew = true;
  options.job = "second";
  ExpectRefused(MakeCredentials(options), absl::StatusCode::kInvalidArgument,
                {"found the job name 'second'", "allowed is 'first'", folder_});
  EXPECT_EQ(TextsIn(folder_), before);
  // Where only the authority is kept, there is nothing to compare it with.
  for (const Role role : kRoles) std::filesystem::remove(Certificate(role));
  EXPECT_TRUE(MakeCredentials(options).ok());
}

TEST_F(CredentialsTest, SayOfWhichJobTheyAreAndForHowLong) {
  const absl::StatusOr<Made> made = ReadMade(folder_);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->job, "first");
  const MakeOptions options = MakeFor(folder_);
  EXPECT_LE(absl::AbsDuration(made->life - (options.not_after - options.not_before)), absl::Seconds(1));
  ExpectRefused(ReadMade(temporary_.path()).status(), absl::StatusCode::kNotFound, {"found no certificate"});
  Write(Certificate(Role::kWorker), TextsIn(folder_).at("ca.crt"));
  ExpectRefused(ReadMade(folder_).status(), absl::StatusCode::kInvalidArgument, {"worker.crt", "not of a job"});
}

TEST_F(CredentialsTest, FoldersThatOthersSeeAreRefused) {
  const std::string open = temporary_.path() + "/open";
  std::filesystem::create_directory(open);
  ASSERT_EQ(::chmod(open.c_str(), 0755), 0);
  ExpectRefused(MakeCredentials(MakeFor(open)), absl::StatusCode::kPermissionDenied,
                {open, "found a folder with mode 0755", "allowed is 0700"});
  EXPECT_TRUE(std::filesystem::is_empty(open));
}

TEST_F(CredentialsTest, NamesThatNoJobHasAreRefused) {
  for (const char* name : {"", "a/b", "a,URI:b", "..", "a b"}) {
    MakeOptions options = MakeFor(temporary_.path() + "/named");
    options.job = name;
    ExpectRefused(MakeCredentials(options), absl::StatusCode::kInvalidArgument,
                  {"found the job name", "letters, digits"});
  }
  EXPECT_FALSE(std::filesystem::exists(temporary_.path() + "/named"));
}

TEST_F(CredentialsTest, OfOneWorkerAreAFolderThatCanBeGivenAway) {
  const absl::StatusOr<std::string> made = MakeWorkerCredentials(MakeFor(folder_), "alice");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(*made, folder_ + "/workers/alice");
  const auto texts = TextsIn(*made);
  EXPECT_EQ(texts.size(), 3u);
  EXPECT_EQ(texts.at("ca.crt"), TextsIn(folder_).at("ca.crt"));
  EXPECT_EQ(ModeOf(*made + "/worker.key"), 0600);
  EXPECT_TRUE(CheckPair(*made, {"first", Role::kWorker}, absl::Now()).ok());
  ExpectRefused(CheckPair(*made, {"second", Role::kWorker}, absl::Now()), absl::StatusCode::kInvalidArgument,
                {"found a certificate for spiffe://slackline/first/worker/alice", "allowed is"});
  ExpectRefused(MakeWorkerCredentials(MakeFor(folder_), "alice").status(), absl::StatusCode::kAlreadyExists,
                {"worker.crt: found a certificate", "--renew"});
  MakeOptions renew = MakeFor(folder_);
  renew.renew = true;
  ASSERT_TRUE(MakeWorkerCredentials(renew, "alice").ok());
  EXPECT_NE(TextsIn(*made).at("worker.key"), texts.at("worker.key"));
  for (const char* name : {"", "a/b", "a,URI:b", ".."}) {
    ExpectRefused(MakeWorkerCredentials(MakeFor(folder_), name).status(), absl::StatusCode::kInvalidArgument,
                  {"found the worker name", "letters, digits"});
  }
  renew.job = "second";
  ExpectRefused(MakeWorkerCredentials(renew, "bob").status(), absl::StatusCode::kInvalidArgument,
                {"allowed is 'first'"});
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/workers/bob"));
}

TEST_F(CredentialsTest, ThatAreRevokedStaySoAndCountWithoutARestart) {
  const MakeOptions options = MakeFor(folder_);
  const absl::StatusOr<std::shared_ptr<RevokedNames>> names = RevokedNames::Open(folder_);
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_FALSE((*names)->Has("alice"));
  ASSERT_TRUE(MakeWorkerCredentials(options, "alice").ok());
  ExpectRefused(RevokeWorker(options, "alcie"), absl::StatusCode::kNotFound, {"found no worker alcie", "--force"});
  EXPECT_FALSE(std::filesystem::exists(RevokedPath(folder_)));
  ASSERT_TRUE(RevokeWorker(options, "alice").ok());
  ASSERT_TRUE(RevokeWorker(options, "alice").ok()) << "again changes nothing";
  EXPECT_EQ(TextsIn(folder_).at("revoked"), "alice\n");
  ExpectRefused(MakeWorkerCredentials(options, "alice").status(), absl::StatusCode::kInvalidArgument,
                {"'alice'", "revokes", "another name"});
  const SteadyTime time;
  const auto comes = [&](bool revoked, const char* name) {
    const absl::Time end = time.Now() + absl::Seconds(60);
    while ((*names)->Has(name) != revoked && time.Now() < end) std::this_thread::yield();
    return (*names)->Has(name) == revoked;
  };
  EXPECT_TRUE(comes(true, "alice"));
  EXPECT_FALSE((*names)->Has("bob"));
  // A broken list, or none, gives nobody back what was taken; a whole one counts again.
  Write(RevokedPath(folder_), "a b\n");
  ExpectRefused(ReadRevoked(RevokedPath(folder_)).status(), absl::StatusCode::kInvalidArgument,
                {"revoked: found a line that is no name"});
  ExpectRefused(RevokedNames::Open(folder_).status(), absl::StatusCode::kInvalidArgument, {"no name"});
  EXPECT_TRUE((*names)->Has("alice"));
  Write(RevokedPath(folder_), "bob\n", 0666);
  ExpectRefused(ReadRevoked(RevokedPath(folder_)).status(), absl::StatusCode::kPermissionDenied, {"found mode 0666"});
  Write(RevokedPath(folder_), "alice\nbob\n");
  EXPECT_TRUE(comes(true, "bob"));
  std::filesystem::remove(RevokedPath(folder_));
  EXPECT_TRUE(comes(true, "alice"));
}

TEST_F(CredentialsTest, KeysThatOthersReadAreRefused) {
  for (const mode_t mode : {0640, 0604, 0644, 0700}) {
    ASSERT_EQ(::chmod(Key(Role::kWorker).c_str(), mode), 0);
    ExpectRefused(Check(), absl::StatusCode::kPermissionDenied,
                  {Key(Role::kWorker), absl::StrFormat("found mode %04o", mode), "allowed is 0600 or less"});
  }
  ASSERT_EQ(::chmod(Key(Role::kWorker).c_str(), 0400), 0);
  EXPECT_TRUE(Check().ok());
  // Certificates are no secret.
  ASSERT_EQ(::chmod(Certificate(Role::kWorker).c_str(), 0644), 0);
  EXPECT_TRUE(Check().ok());
}

TEST_F(CredentialsTest, MissingFilesAreNamed) {
  std::filesystem::remove(Key(Role::kServer));
  ExpectRefused(Check(Role::kServer), absl::StatusCode::kNotFound, {Key(Role::kServer), "found no such file"});
  std::filesystem::remove(AuthorityPath(folder_));
  ExpectRefused(Check(), absl::StatusCode::kNotFound, {AuthorityPath(folder_)});
}

TEST_F(CredentialsTest, OnesOfOthersAreRefused) {
  ExpectRefused(Check(Role::kWorker, "second"), absl::StatusCode::kInvalidArgument,
                {Certificate(Role::kWorker), "found a certificate for spiffe://slackline/first/worker",
                 "allowed is one for spiffe://slackline/second/worker"});
  std::filesystem::copy_file(Certificate(Role::kServer), Certificate(Role::kWorker),
                             std::filesystem::copy_options::overwrite_existing);
  ExpectRefused(Check(), absl::StatusCode::kInvalidArgument, {Key(Role::kWorker), "found another key"});
  std::filesystem::copy_file(Key(Role::kServer), Key(Role::kWorker), std::filesystem::copy_options::overwrite_existing);
  ExpectRefused(Check(), absl::StatusCode::kInvalidArgument,
                {"found a certificate for spiffe://slackline/first/server"});
}

TEST_F(CredentialsTest, OnesThatDoNotHoldAreRefused) {
  const std::string other = temporary_.path() + "/other";
  ASSERT_TRUE(MakeCredentials(MakeFor(other)).ok());
  EXPECT_TRUE(CheckPair(folder_, {"first", Role::kWorker}, absl::Now()).ok());
  ExpectRefused(CheckPair(folder_, {"first", Role::kWorker}, absl::Now() + absl::Hours(2)),
                absl::StatusCode::kInvalidArgument, {Certificate(Role::kWorker), "certificate has expired"});
  ExpectRefused(CheckPair(folder_, {"first", Role::kWorker}, absl::Now() - absl::Hours(2)),
                absl::StatusCode::kInvalidArgument, {"not yet valid"});
  std::filesystem::copy_file(AuthorityPath(other), AuthorityPath(folder_),
                             std::filesystem::copy_options::overwrite_existing);
  ExpectRefused(Check(), absl::StatusCode::kInvalidArgument,
                {Certificate(Role::kWorker), "that ca.crt beside it has signed"});
}

TEST_F(CredentialsTest, WhatIsNoPemIsNamed) {
  Write(Key(Role::kWorker), "nothing");
  ExpectRefused(Check(), absl::StatusCode::kInvalidArgument, {Key(Role::kWorker), "no private key"});
  Write(Certificate(Role::kServer), "");
  ExpectRefused(Check(Role::kServer), absl::StatusCode::kInvalidArgument,
                {Certificate(Role::kServer), "no certificate"});
}

TEST_F(CredentialsTest, AMachineNeedsTheFilesOfItsRolesOnly) {
  job::Job job;
  job.set_name("first");
  job.mutable_security()->set_mode(job::Security::TLS);
  job.mutable_security()->set_folder(folder_);
  EXPECT_TRUE(CheckCredentials(job, absl::Now()).ok());
  for (const Role role : {Role::kScheduler, Role::kServer, Role::kOperator}) {
    std::filesystem::remove(Key(role));
    std::filesystem::remove(Certificate(role));
  }
  EXPECT_TRUE(CheckCredentials(job, absl::Now()).ok());
  std::filesystem::remove(Key(Role::kWorker));
  ExpectRefused(CheckCredentials(job, absl::Now()), absl::StatusCode::kNotFound, {Key(Role::kWorker)});
  std::filesystem::remove(Certificate(Role::kWorker));
  ExpectRefused(CheckCredentials(job, absl::Now()), absl::StatusCode::kNotFound, {folder_, "found no ROLE.crt"});
}

TEST(Token, IsRandomAndItsOwnersAlone) {
  const TemporaryFolder folder;
  const std::string one = folder.path() + "/one", other = folder.path() + "/other";
  ASSERT_TRUE(MakeToken(one, false).ok());
  ASSERT_TRUE(MakeToken(other, false).ok());
  EXPECT_EQ(ModeOf(one), 0600);
  EXPECT_NE(*ReadToken(one), *ReadToken(other));
  EXPECT_GE(ReadToken(one)->size(), 43u);
  const std::string before = *ReadToken(one);
  EXPECT_EQ(MakeToken(one, false).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(*ReadToken(one), before);
  ASSERT_TRUE(MakeToken(one, true).ok());
  EXPECT_NE(*ReadToken(one), before);
}

TEST(Token, WhatIsNoneIsRefusedWithoutBeingTold) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/token";
  EXPECT_THAT(std::string(ReadToken(path).status().message()), AllOf(HasSubstr(path), HasSubstr("found no such file")));
  for (const std::string text : {"short", "with a space in it, long", "two\nlines-that-are-long"}) {
    Write(path, text);
    const absl::Status status = ReadToken(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("16 to 4096"));
    EXPECT_THAT(std::string(status.message()), testing::Not(HasSubstr(text)));
  }
  Write(path, "a-token-of-enough-letters\n", 0644);
  EXPECT_THAT(std::string(ReadToken(path).status().message()), AllOf(HasSubstr(path), HasSubstr("found mode 0644")));
  Write(path, "a-token-of-enough-letters\n", 0600);
  EXPECT_THAT(*ReadToken(path), StrEq("a-token-of-enough-letters"));
}

}  // namespace
}  // namespace slackline::security::credentials_test
