// Real servers and clients with certificates and tokens: a worker with the right ones trains; any other is refused and
// changes nothing.
#include <map>
#include <tuple>

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include "common/rpc/channel.h"
#include "common/security/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exchange/cluster.h"
#include "tests/exchange/raw_stream.h"
#include "tests/security/fixture.h"

namespace slackline::security::exchange_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

ClusterShape ShapeWith(const Credentials& credentials, Path path = Path::kTcp) {
  ClusterShape shape;
  shape.path = path;
  shape.server_security = credentials.For(Role::kServer);
  shape.scheduler_security = credentials.For(Role::kScheduler);
  shape.worker_security = credentials.For(Role::kWorker);
  return shape;
}

// A trainer whose steps are right, so that a server can be seen to go on.
class Right {
 public:
  explicit Right(const Cluster& cluster) : trainer_(cluster.ClientOptions(1), cluster.map()) {
    expected_ = std::vector<float>(cluster.map().elements, 8);
    trainer_.Seed(expected_);
    trainer_.Pull();
  }

  void StepAndCheck() {
    const std::vector<float> gradient(expected_.size(), 2);
    trainer_.Step(gradient);
    StepPlainly(gradient, Cluster::kLearningRate, expected_);
    EXPECT_EQ(trainer_.parameters(), expected_);
  }

 private:
  TestTrainer trainer_;
  std::vector<float> expected_;
};

class PathTest : public testing::TestWithParam<std::tuple<job::Security::Mode, Path>> {};

TEST_P(PathTest, ARightWorkerTrains) {
  const auto [mode, path] = GetParam();
  const Credentials credentials(mode);
  Cluster cluster(ShapeWith(credentials, path));
  Right right(cluster);
  for (int step = 0; step < 5; ++step) right.StepAndCheck();
  EXPECT_THAT(cluster.notices(1), Contains(HasSubstr("open " + Words(path))));
}

INSTANTIATE_TEST_SUITE_P(All, PathTest,
                         testing::Combine(testing::Values(job::Security::NONE, job::Security::TOKEN,
                                                          job::Security::TLS),
                                          testing::ValuesIn(kPaths)),
                         [](const auto& info) {
                           return job::Security::Mode_Name(std::get<0>(info.param)) + "_" +
                                  Name(std::get<1>(info.param));
                         });

// What a stream of `channel` ends with when it says Hello as worker 2.
grpc::Status EndOf(const std::shared_ptr<grpc::Channel>& channel, uint32_t number = 2) {
  RawStream stream(channel, number);
  if (stream.first().has_welcome()) return grpc::Status::OK;
  return stream.Finish();
}

class RefusalTest : public testing::Test {
 protected:
  // After each refusal the right worker goes on, from where it was.
  void ExpectRefused(const std::shared_ptr<const rpc::Protection>& protection, grpc::StatusCode code,
                     const std::vector<std::string>& words) {
    const auto before = cluster_->version_max();
    const grpc::Status tcp = EndOf(rpc::DataChannel(cluster_->map().servers[0].address, protection));
    const grpc::Status local = EndOf(rpc::DataChannel(rpc::UnixAddress(cluster_->map().servers[0].socket), protection));
    for (const grpc::Status& end : {tcp, local}) {
      EXPECT_EQ(end.error_code(), code) << end.error_message();
      for (const std::string& word : words) EXPECT_THAT(end.error_message(), HasSubstr(word));
    }
    EXPECT_EQ(cluster_->version_max(), before);
    right_->StepAndCheck();
  }

  void Begin(job::Security::Mode mode) {
    credentials_ = std::make_unique<Credentials>(mode);
    cluster_ = std::make_unique<Cluster>(ShapeWith(*credentials_, Path::kSharedMemory));
    right_ = std::make_unique<Right>(*cluster_);
    right_->StepAndCheck();
  }

  // Makes no checks of its own, as a stranger's program.
  static std::shared_ptr<const rpc::Protection> Stranger(const std::string& authority_folder,
                                                         const std::optional<KeyPair>& pair) {
    namespace tls = grpc::experimental;
    std::vector<tls::IdentityKeyCertPair> pairs;
    if (pair) pairs.push_back({*ReadPublic(pair->key), *ReadPublic(pair->certificate)});
    const auto provider =
        std::make_shared<tls::StaticDataCertificateProvider>(*ReadPublic(AuthorityPath(authority_folder)), pairs);
    tls::TlsChannelCredentialsOptions options;
    options.set_certificate_provider(provider);
    options.watch_root_certs();
    if (pair) options.watch_identity_key_cert_pairs();
    options.set_check_call_host(false);
    options.set_certificate_verifier(std::make_shared<tls::NoOpCertificateVerifier>());
    auto protection = std::make_shared<rpc::Protection>();
    protection->credentials = tls::TlsCredentials(options);
    return protection;
  }

  std::unique_ptr<Credentials> credentials_;
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<Right> right_;
};

TEST_F(RefusalTest, ThoseWithoutTheToken) {
  Begin(job::Security::TOKEN);
  ExpectRefused(nullptr, grpc::StatusCode::UNAUTHENTICATED, {"found no token", "security.token_file"});
  const Credentials others(job::Security::TOKEN);
  ExpectRefused(others.For(Role::kWorker).To(Role::kServer), grpc::StatusCode::UNAUTHENTICATED,
                {"found another token", "security.token_file"});
}

TEST_F(RefusalTest, ThoseWithoutACertificate) {
  Begin(job::Security::TLS);
  ExpectRefused(nullptr, grpc::StatusCode::UNAVAILABLE, {});
  ExpectRefused(Stranger(credentials_->folder(), std::nullopt), grpc::StatusCode::UNAVAILABLE, {});
}

TEST_F(RefusalTest, CertificatesOfAnotherAuthority) {
  Begin(job::Security::TLS);
  const Credentials others(job::Security::TLS);
  ExpectRefused(Stranger(credentials_->folder(), PathsOf(others.folder(), Role::kWorker)),
                grpc::StatusCode::UNAVAILABLE, {});
  // Who knows another authority does not talk to this server either.
  ExpectRefused(others.For(Role::kWorker).To(Role::kServer), grpc::StatusCode::UNAVAILABLE,
                {"certificate verify failed"});
}

TEST_F(RefusalTest, ExpiredCertificates) {
  Begin(job::Security::TLS);
  const TemporaryFolder folder;
  for (const char* name : {"/ca.crt", "/ca.key"}) {
    std::filesystem::copy(credentials_->folder() + name, folder.path() + name);
  }
  MakeOptions make = MakeFor(folder.path(), -absl::Minutes(1));
  make.renew = true;
  ASSERT_TRUE(MakeCredentials(make).ok());
  ExpectRefused(Stranger(folder.path(), PathsOf(folder.path(), Role::kWorker)), grpc::StatusCode::UNAVAILABLE, {});
}

TEST_F(RefusalTest, WrongRoles) {
  Begin(job::Security::TLS);
  const std::string method = "slackline.wire.ParameterServer.Exchange";
  for (const Role role : {Role::kScheduler, Role::kServer}) {
    ExpectRefused(credentials_->For(role).To(Role::kServer), grpc::StatusCode::PERMISSION_DENIED,
                  {std::string("found a ") + RoleName(role) + " of job first that calls " + method,
                   "allowed is worker, operator"});
  }
  // May only read.
  ExpectRefused(credentials_->For(Role::kOperator).To(Role::kServer), grpc::StatusCode::PERMISSION_DENIED,
                {"found an operator of job first that wants to push", "allowed is worker"});
  const auto operators = credentials_->For(Role::kOperator).To(Role::kServer);
  EXPECT_TRUE(EndOf(rpc::DataChannel(cluster_->map().servers[0].address, operators), 0).ok());
}

TEST_F(RefusalTest, ServersThatAreNone) {
  Begin(job::Security::TLS);
  // The worker looks for a scheduler and finds a server.
  ExpectRefused(
      credentials_->For(Role::kWorker).To(Role::kScheduler), grpc::StatusCode::UNAVAILABLE,
      {"found a certificate for spiffe://slackline/first/server", "allowed is spiffe://slackline/first/scheduler"});
}

TEST_F(RefusalTest, CertificatesOfAnotherJobOfTheSameAuthority) {
  Begin(job::Security::TLS);
  const TemporaryFolder folder;
  for (const char* name : {"/ca.crt", "/ca.key"}) {
    std::filesystem::copy(credentials_->folder() + name, folder.path() + name);
  }
  MakeOptions make = MakeFor(folder.path());
  make.job = "second";
  make.renew = true;
  ASSERT_TRUE(MakeCredentials(make).ok());
  ExpectRefused(Stranger(folder.path(), PathsOf(folder.path(), Role::kWorker)), grpc::StatusCode::PERMISSION_DENIED,
                {"found a certificate of job second", "allowed is job first"});
}

TEST_F(RefusalTest, RevokedCertificates) {
  Begin(job::Security::TLS);
  const MakeOptions options = MakeFor(credentials_->folder());
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels;
  for (const std::string name : {"alice", "bob"}) {
    const absl::StatusOr<std::string> folder = MakeWorkerCredentials(options, name);
    ASSERT_TRUE(folder.ok()) << folder.status();
    channels[name] =
        rpc::DataChannel(cluster_->map().servers[0].address, Stranger(*folder, PathsOf(*folder, Role::kWorker)));
  }
  // Streams that are open end, too.
  RawStream alice(channels["alice"], 2), bob(channels["bob"], 0);
  ASSERT_TRUE(alice.first().has_welcome() && bob.first().has_welcome());
  ASSERT_TRUE(RevokeWorker(options, "alice").ok());
  EXPECT_FALSE(alice.ReadAnswer().has_welcome());
  const grpc::Status end = alice.Finish();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::PERMISSION_DENIED) << end.error_message();
  EXPECT_THAT(end.error_message(), HasSubstr("found the certificate of worker alice of job first, which is revoked"));
  const std::string folder = credentials_->folder() + "/workers/alice";
  ExpectRefused(Stranger(folder, PathsOf(folder, Role::kWorker)), grpc::StatusCode::PERMISSION_DENIED,
                {"worker alice", "revoked"});
  EXPECT_TRUE(EndOf(channels["bob"], 0).ok());
}

TEST(Reload, CertificatesThatAreReplacedAreUsedForNewConnections) {
  const Credentials credentials(job::Security::TLS);
  Cluster cluster(ShapeWith(credentials));
  Right right(cluster);
  right.StepAndCheck();
  // A new authority: nothing that it has signed was any good before.
  const Credentials others(job::Security::TLS);
  const std::string& address = cluster.map().servers[0].address;
  const auto with_new = others.For(Role::kOperator).To(Role::kServer);
  EXPECT_EQ(EndOf(rpc::DataChannel(address, with_new), 0).error_code(), grpc::StatusCode::UNAVAILABLE);
  for (const auto& file : std::filesystem::directory_iterator(others.folder())) {
    std::filesystem::rename(file.path(), credentials.folder() / file.path().filename());
  }
  EXPECT_TRUE(Eventually([&] { return EndOf(rpc::DataChannel(address, with_new), 0).ok(); }));
  // A connection that is there stays.
  right.StepAndCheck();
  // And so do the clients' own files.
  TestTrainer later(cluster.ClientOptions(2), cluster.map());
  later.Pull();
}

}  // namespace
}  // namespace slackline::security::exchange_test
