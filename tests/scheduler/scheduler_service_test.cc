// The scheduler over loopback: its service, and its calls to servers.
#include "scheduler/service/service.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/strings/str_cat.h"
#include "common/job/job_file.h"
#include "common/rpc/channel.h"
#include "common/time/clock.h"
#include "scheduler/service/address.h"
#include "scheduler/service/server_links.h"
#include "tests/common/stranger.h"

namespace slackline::scheduler::scheduler_service_test {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(20);

// A server whose first answers are not to its caller's liking.
class StubbornServer final : public wire::ParameterServerControl::Service {
 public:
  StubbornServer() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  grpc::Status InstallShards(grpc::ServerContext*, const wire::InstallShardsRequest*,
                             wire::InstallShardsReply*) override {
    absl::MutexLock lock(&mutex_);
    if (install_status_.ok() && refusals_left_-- > 0) return {grpc::StatusCode::UNAVAILABLE, "not yet"};
    calls_ += "install ";
    return install_status_;
  }
  grpc::Status SetMembers(grpc::ServerContext*, const wire::SetMembersRequest* request,
                          wire::SetMembersReply* reply) override {
    absl::MutexLock lock(&mutex_);
    absl::StrAppend(&calls_, "members-", request->epoch(), " ");
    reply->set_epoch(request->epoch());
    return grpc::Status::OK;
  }
  grpc::Status BeginCheckpoint(grpc::ServerContext*, const wire::BeginCheckpointRequest* request,
                               wire::BeginCheckpointReply* reply) override {
    absl::MutexLock lock(&mutex_);
    absl::StrAppend(&calls_, "checkpoint-", request->checkpoint(), " ");
    if (request->checkpoint() == 1) return {grpc::StatusCode::FAILED_PRECONDITION, "no weights yet"};
    reply->set_begun(true);
    return grpc::Status::OK;
  }
  grpc::Status TakeShards(grpc::ServerContext*, const wire::TakeShardsRequest* request,
                          wire::TakeShardsReply*) override {
    absl::MutexLock lock(&mutex_);
    absl::StrAppend(&calls_, "take-", request->move(), " ");
    if (request->move() == 1) return {grpc::StatusCode::INVALID_ARGUMENT, "it is here already"};
    return grpc::Status::OK;
  }
  grpc::Status Stop(grpc::ServerContext*, const wire::StopRequest*, wire::StopReply*) override {
    absl::MutexLock lock(&mutex_);
    calls_ += "stop ";
    return grpc::Status::OK;
  }

  void RefuseForEver(grpc::Status status) {
    absl::MutexLock lock(&mutex_);
    install_status_ = std::move(status);
  }
  std::string calls() {
    absl::MutexLock lock(&mutex_);
    return calls_;
  }

 private:
  absl::Mutex mutex_;
  int refusals_left_ ABSL_GUARDED_BY(mutex_) = 2;
  grpc::Status install_status_ ABSL_GUARDED_BY(mutex_);
  std::string calls_ ABSL_GUARDED_BY(mutex_);
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Remembers what it heard, and lets a test wait for it.
class Listener : public ServerObserver {
 public:
  void Installed(ServerRef, const wire::InstallShardsReply&) override { Hear("installed "); }
  void MembersInstalled(ServerRef, const wire::SetMembersReply& reply) override {
    Hear(absl::StrCat("members-", reply.epoch(), " "));
  }
  void Stopped(ServerRef) override { Hear("stopped "); }
  void CheckpointBegun(ServerRef, const wire::BeginCheckpointRequest& request,
                       const absl::StatusOr<wire::BeginCheckpointReply>& reply) override {
    Hear(absl::StrCat("checkpoint-", request.checkpoint(), " ",
                      reply.ok() ? "begun" : std::string(reply.status().message()), " "));
  }
  void TakeRefused(ServerRef, const wire::TakeShardsRequest& request, const absl::Status& status) override {
    Hear(absl::StrCat("take-", request.move(), " ", std::string(status.message()), " "));
  }
  void Refused(ServerRef, const absl::Status& status) override {
    Hear(absl::StrCat("refused: ", std::string(status.message())));
  }

  // Returns all that was heard, once `last` is part of it or patience ends.
  std::string WaitFor(const std::string& last) {
    absl::MutexLock lock(&mutex_);
    const auto heard = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return heard_.find(last) != std::string::npos; };
    mutex_.AwaitWithTimeout(absl::Condition(&heard), kPatience);
    return heard_;
  }

 private:
  void Hear(const std::string& what) {
    absl::MutexLock lock(&mutex_);
    heard_ += what;
  }

  absl::Mutex mutex_;
  std::string heard_ ABSL_GUARDED_BY(mutex_);
};

constexpr ServerRef kServer{ServerId(1), Incarnation(1)};

wire::SetMembersRequest Members(uint64_t epoch) {
  wire::SetMembersRequest request;
  request.set_epoch(epoch);
  return request;
}

TEST(ServerLinks, RepeatUntilTakenAndKeepTheOrder) {
  StubbornServer server;
  Listener listener;
  ServerLinks links(Timeouts{});
  links.Connect(kServer, "ps-1", server.address(), listener);
  links.SetMembers(kServer, Members(2));
  links.SetMembers(kServer, Members(1));  // older: never sent
  links.Install(kServer, {});
  EXPECT_EQ(listener.WaitFor("members-2"), "installed members-2 ");
  links.Stop(kServer, {});
  EXPECT_EQ(listener.WaitFor("stopped"), "installed members-2 stopped ");
  EXPECT_EQ(server.calls(), "install members-2 stop ");
}

TEST(ServerLinks, CheckpointThatIsRefusedEndsNothing) {
  StubbornServer server;
  Listener listener;
  ServerLinks links(Timeouts{});
  links.Connect(kServer, "ps-1", server.address(), listener);
  links.Install(kServer, {});
  wire::BeginCheckpointRequest request;
  request.set_checkpoint(1);
  links.BeginCheckpoint(kServer, request);
  EXPECT_EQ(listener.WaitFor("checkpoint"), "installed checkpoint-1 no weights yet ");
  request.set_checkpoint(2);
  links.BeginCheckpoint(kServer, request);
  EXPECT_THAT(listener.WaitFor("begun"), HasSubstr("checkpoint-2 begun"));
  links.SetMembers(kServer, Members(3));
  EXPECT_THAT(listener.WaitFor("members-3"), HasSubstr("members-3"));
}

TEST(ServerLinks, ShardsThatAreNotTakenEndNothing) {
  StubbornServer server;
  Listener listener;
  ServerLinks links(Timeouts{});
  links.Connect(kServer, "ps-1", server.address(), listener);
  wire::TakeShardsRequest request;
  request.set_move(1);
  links.TakeShards(kServer, request);
  EXPECT_EQ(listener.WaitFor("already"), "take-1 it is here already ");
  request.set_move(2);
  links.TakeShards(kServer, request);
  links.Install(kServer, {});
  EXPECT_THAT(listener.WaitFor("installed"), HasSubstr("installed"));
  EXPECT_EQ(server.calls(), "take-1 take-2 install ") << "taken before they are installed";
}

TEST(ServerLinks, ASetOfAnotherShardMapIsForgotten) {
  StubbornServer server;
  Listener listener;
  ServerLinks links(Timeouts{});
  links.Connect(kServer, "ps-1", server.address(), listener);
  wire::SetMembersRequest members = Members(7);
  members.set_generation(1);
  links.SetMembers(kServer, members);
  wire::InstallShardsRequest install;
  install.set_generation(2);
  links.Install(kServer, install);
  members = Members(6);
  members.set_generation(2);
  links.SetMembers(kServer, members);
  listener.WaitFor("members-");
  EXPECT_EQ(server.calls(), "install members-6 ");
}

TEST(ServerLinks, FinalRefusalIsToldOnce) {
  StubbornServer server;
  server.RefuseForEver({grpc::StatusCode::INVALID_ARGUMENT, "shards overlap"});
  Listener listener;
  ServerLinks links(Timeouts{});
  links.Connect(kServer, "ps-1", server.address(), listener);
  links.Install(kServer, {});
  EXPECT_EQ(listener.WaitFor("refused"), "refused: shards overlap");
  links.Close();
  EXPECT_EQ(server.calls(), "install ");
}

TEST(ServerLinks, CloseDoesNotWaitForAServerThatIsGone) {
  Listener listener;
  ServerLinks links(Timeouts{});
  links.Connect(kServer, "ps-1", "unix:/nonexistent/slackline", listener);
  links.Install(kServer, {});
  links.Connect({ServerId(1), Incarnation(2)}, "ps-1", "unix:/nonexistent/slackline", listener);
  const absl::Time before = absl::Now();
  links.Close();
  EXPECT_LT(absl::Now() - before, kPatience / 2);
}

class ServiceTest : public testing::Test {
 protected:
  ServiceTest() : links_(Timeouts{}), controller_(Config(), time_, links_) {
    auto server = SchedulerServer::Start("127.0.0.1:0", controller_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = wire::Scheduler::NewStub(rpc::ControlChannel(absl::StrCat("127.0.0.1:", server_->port())));
  }

  static Controller::Config Config() {
    Controller::Config config;
    config.job = Resolve(job::Job());
    config.fingerprint = 5;
    config.id = JobId(77);
    return config;
  }

  std::unique_ptr<grpc::ClientContext> Context() { return rpc::ContextWithTimeout(kPatience); }

  SteadyTime time_;
  ServerLinks links_;
  Controller controller_;
  std::unique_ptr<SchedulerServer> server_;
  std::unique_ptr<wire::Scheduler::Stub> stub_;
};

TEST_F(ServiceTest, StatusIsThere) {
  wire::GetStatusReply reply;
  const grpc::Status status = stub_->GetStatus(Context().get(), {}, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(reply.job(), 77u);
  EXPECT_EQ(reply.state(), wire::JOB_STARTING);
  EXPECT_THAT(reply.reason(), HasSubstr("0 of 2 servers"));
}

TEST_F(ServiceTest, RefusalsKeepTheirCodeAndMessage) {
  wire::RegisterServerRequest request;
  request.set_name("ps-1");
  request.set_address("127.0.0.1:1");
  request.set_job_fingerprint(6);
  wire::RegisterServerReply reply;
  const grpc::Status status = stub_->RegisterServer(Context().get(), request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("server ps-1 was started with another job file"));
}

TEST_F(ServiceTest, StopEndsTheJob) {
  wire::StopJobRequest request;
  request.set_reason("enough");
  wire::StopJobReply reply;
  ASSERT_TRUE(stub_->StopJob(Context().get(), request, &reply).ok());
  EXPECT_EQ(controller_.state(), wire::JOB_STOPPED);
}

TEST_F(ServiceTest, TheTextOfAStrangerIsBounded) {
  // A client that mends nothing.
  const auto stub = wire::Scheduler::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", server_->port()), grpc::InsecureChannelCredentials()));
  const std::string huge(1 << 20, 'x');
  wire::ReportExitRequest exit;
  exit.set_job(77);
  exit.set_name("w-1");
  exit.set_reason(huge);
  wire::ReportExitReply exited;
  ASSERT_TRUE(stub->ReportExit(Context().get(), exit, &exited).ok());
  wire::StopJobRequest stop;
  stop.set_reason(huge);
  wire::StopJobReply stopped;
  ASSERT_TRUE(stub->StopJob(Context().get(), stop, &stopped).ok());
  wire::GetStatusReply reply;
  ASSERT_TRUE(stub->GetStatus(Context().get(), {}, &reply).ok());
  EXPECT_LT(reply.reason().size(), 10000u);
  EXPECT_LT(reply.ByteSizeLong(), 100000u);
}

TEST_F(ServiceTest, PortThatIsTakenIsNamed) {
  const std::string address = absl::StrCat("127.0.0.1:", server_->port());
  const absl::Status status = SchedulerServer::Start(address, controller_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(address));
}

TEST_F(ServiceTest, ConnectionsThatSayNothingAreCutOffAndOthersDoNotWait) {
  ServiceLimits limits;
  limits.handshake = absl::Seconds(3);  // of slow machines, too
  server_ = *SchedulerServer::Start("127.0.0.1:0", controller_, {}, nullptr, limits);
  stub_ = wire::Scheduler::NewStub(rpc::ControlChannel(absl::StrCat("127.0.0.1:", server_->port())));
  std::vector<Stranger> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.emplace_back(server_->port());
    ASSERT_TRUE(strangers.back().connected());
  }
  wire::GetStatusReply reply;
  grpc::Status status = stub_->GetStatus(Context().get(), {}, &reply);
  EXPECT_TRUE(status.ok()) << status.error_message();
  for (const Stranger& stranger : strangers) EXPECT_TRUE(stranger.IsCutOff(kPatience));
  status = stub_->GetStatus(Context().get(), {}, &reply);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

// Calls `call` 20 times from each of `callers` threads with a connection of their own; returns how often each status
// came.
std::map<grpc::StatusCode, int> CallFromMany(uint16_t port, int callers,
                                             const std::function<grpc::Status(wire::Scheduler::Stub&)>& call) {
  std::mutex mutex;
  std::map<grpc::StatusCode, int> codes;
  std::vector<std::thread> threads;
  for (int i = 0; i < callers; ++i) {
    threads.emplace_back([&] {
      const auto stub = wire::Scheduler::NewStub(rpc::ControlChannel(absl::StrCat("127.0.0.1:", port)));
      for (int round = 0; round < 20; ++round) {
        const grpc::Status status = call(*stub);
        const std::lock_guard lock(mutex);
        ++codes[status.error_code()];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return codes;
}

TEST_F(ServiceTest, ManyCallersAtOnceAreAllAnswered) {
  const auto codes = CallFromMany(server_->port(), 200, [this](wire::Scheduler::Stub& stub) {
    wire::GetShardMapReply reply;
    return stub.GetShardMap(Context().get(), {}, &reply);
  });
  // The requests name another job than the scheduler's.
  EXPECT_THAT(codes, ::testing::ElementsAre(::testing::Pair(grpc::StatusCode::FAILED_PRECONDITION, 4000)));
}

TEST_F(ServiceTest, MoreCallsForTheStatusThanAllowedAreRefusedOrAnsweredAndNobodyIsLeftWaiting) {
  ServiceLimits limits;
  limits.slow_calls = 2;
  server_ = *SchedulerServer::Start("127.0.0.1:0", controller_, {}, nullptr, limits);
  auto codes = CallFromMany(server_->port(), 32, [this](wire::Scheduler::Stub& stub) {
    wire::GetStatusReply reply;
    return stub.GetStatus(Context().get(), {}, &reply);
  });
  EXPECT_GT(codes[grpc::StatusCode::OK], 0);
  EXPECT_GT(codes[grpc::StatusCode::RESOURCE_EXHAUSTED], 0);
  EXPECT_EQ(codes[grpc::StatusCode::OK] + codes[grpc::StatusCode::RESOURCE_EXHAUSTED], 640);
  // Places are given back.
  wire::GetStatusReply reply;
  const grpc::Status after = wire::Scheduler::NewStub(rpc::ControlChannel(absl::StrCat("127.0.0.1:", server_->port())))
                                 ->GetStatus(Context().get(), {}, &reply);
  EXPECT_TRUE(after.ok()) << after.error_message();
}

TEST(Address, FlagGoesBeforeTheJobFileAndAdvertisedBeforeBoth) {
  job::Network network;
  network.set_listen("10.0.0.1");
  EXPECT_EQ(ListenAddress("", network), "10.0.0.1:0");
  EXPECT_EQ(ListenAddress("0.0.0.0:70", network), "0.0.0.0:70");
  EXPECT_EQ(AdvertisedAddress("10.0.0.1:0", network, 70), "10.0.0.1:70");
  network.set_advertise("node-1");
  EXPECT_EQ(AdvertisedAddress("0.0.0.0:0", network, 70), "node-1:70");
}

TEST(Address, FileHoldsOneLine) {
  std::string folder = (std::filesystem::temp_directory_path() / "slackline-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ASSERT_TRUE(WriteAddressFile(folder + "/address", "node-1:70").ok());
  std::ifstream in(folder + "/address");
  std::string text(std::istreambuf_iterator<char>(in), {});
  EXPECT_EQ(text, "node-1:70\n");
  EXPECT_EQ(WriteAddressFile(folder + "/none/address", "node-1:70").code(), absl::StatusCode::kUnavailable);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace slackline::scheduler::scheduler_service_test
