// The table of methods against the services' descriptors, and real services against the table.
#include "common/security/methods.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/job/job_file.h"
#include "common/metrics/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job_service.pb.h"
#include "parameter_server.pb.h"
#include "ps/service/sequencer.h"
#include "scheduler.grpc.pb.h"
#include "scheduler/service/server_links.h"
#include "scheduler/service/service.h"
#include "tests/security/fixture.h"

namespace slackline::security::methods_test {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

using Files = std::vector<const google::protobuf::FileDescriptor*>;

// The files with services of a job, and of the service that keeps many jobs.
Files OfAJob() { return {wire::Hello::descriptor()->file(), wire::HeartbeatRequest::descriptor()->file()}; }
Files OfManyJobs() { return {wire::SubmitRequest::descriptor()->file()}; }

// Every method of every service in these files.
std::vector<const google::protobuf::MethodDescriptor*> Declared(const Files& files) {
  std::vector<const google::protobuf::MethodDescriptor*> methods;
  for (const auto* file : files) {
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j) methods.push_back(file->service(i)->method(j));
    }
  }
  return methods;
}

TEST(Methods, TheTableHasEveryMethodOnce) {
  std::vector<std::string> declared, listed;
  for (const Files& files : {OfAJob(), OfManyJobs()}) {
    for (const auto* method : Declared(files)) declared.push_back(method->full_name());
  }
  for (const Method& method : Methods()) listed.emplace_back(method.name);
  EXPECT_THAT(listed, UnorderedElementsAreArray(declared));
}

TEST(Methods, NobodyMayCallWhatIsNotThere) { EXPECT_EQ(CallersOf("slackline.wire.Scheduler.Nothing").ToString(), ""); }

TEST(Methods, OrdersAreForThoseWhoGiveThem) {
  EXPECT_EQ(CallersOf("slackline.wire.Scheduler.StopJob").ToString(), "operator");
  EXPECT_EQ(CallersOf("slackline.wire.ParameterServerControl.InstallShards").ToString(), "scheduler");
  EXPECT_EQ(CallersOf("slackline.wire.ParameterServer.Exchange").ToString(), "worker, operator");
  EXPECT_EQ(CallersOf("slackline.wire.Scheduler.GetStatus").ToString(), "scheduler, server, worker, operator");
}

TEST(Identity, IsReadBackAndNothingElseIs) {
  for (const Role role : kRoles) {
    const auto found = Identity::FromUri(Identity{"a-job_1.x", role}.ToUri());
    ASSERT_TRUE(found);
    EXPECT_EQ(found->job, "a-job_1.x");
    EXPECT_EQ(found->role, role);
  }
  const auto own = Identity::FromUri(Identity{"first", Role::kWorker, "alice-2.x_y"}.ToUri());
  ASSERT_TRUE(own);
  EXPECT_EQ(own->role, Role::kWorker);
  EXPECT_EQ(own->name, "alice-2.x_y");
  for (const char* uri :
       {"", "spiffe://slackline/first", "spiffe://slackline/first/", "spiffe://slackline//worker",
        "spiffe://other/first/worker", "spiffe://slackline/first/worker/", "spiffe://slackline/first/worker/a b",
        "spiffe://slackline/first/server/x", "spiffe://slackline/first/worker/x/y", "spiffe://slackline/first/workerx",
        "urn:slackline/first/worker", "spiffe://slackline/first/Worker"}) {
    EXPECT_FALSE(Identity::FromUri(uri)) << uri;
  }
}

// A scheduler and a server that nobody has registered with.
class ServicesTest : public testing::Test {
 protected:
  ServicesTest() : links_(Timeouts{}), controller_(Config(), time_, links_) {
    ps::SequencerOptions options;
    options.job = Resolve(job::Job());
    options.timeouts.heartbeat = absl::Milliseconds(50);
    options.security = credentials_.For(Role::kServer);
    exchange_ = *ps::Sequencer::Start(options, metrics_, time_);
    scheduler_ = *scheduler::SchedulerServer::Start("127.0.0.1:0", controller_, credentials_.For(Role::kScheduler));
  }

  static scheduler::Controller::Config Config() {
    scheduler::Controller::Config config;
    config.job = Resolve(job::Job());
    config.id = JobId(77);
    return config;
  }

  std::shared_ptr<grpc::Channel> ChannelTo(const std::string& service, Role role) {
    const bool to_scheduler = service == "slackline.wire.Scheduler";
    const uint16_t port = to_scheduler ? scheduler_->port() : exchange_->port();
    return rpc::ControlChannel(absl::StrCat("127.0.0.1:", port),
                               credentials_.For(role).To(to_scheduler ? Role::kScheduler : Role::kServer));
  }

  // With an empty request, which nobody takes far.
  grpc::Status Call(const google::protobuf::MethodDescriptor& method, Role role) {
    grpc::GenericStub stub(ChannelTo(method.service()->full_name(), role));
    grpc::CompletionQueue queue;
    const auto context = rpc::ContextWithTimeout(absl::Seconds(20));
    const std::string path = absl::StrCat("/", method.service()->full_name(), "/", method.name());
    const grpc::Slice nothing;
    const auto call = stub.PrepareUnaryCall(context.get(), path, grpc::ByteBuffer(&nothing, 1), &queue);
    call->StartCall();
    grpc::ByteBuffer reply;
    grpc::Status status;
    void* tag = nullptr;
    bool ok = false;
    call->Finish(&reply, &status, nullptr);
    EXPECT_TRUE(queue.Next(&tag, &ok));
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) {
    }
    return status;
  }

  const Credentials credentials_{job::Security::TLS};
  SteadyTime time_;
  Metrics metrics_{{}};
  std::unique_ptr<ps::Sequencer> exchange_;
  scheduler::ServerLinks links_;
  scheduler::Controller controller_;
  std::unique_ptr<scheduler::SchedulerServer> scheduler_;
};

TEST_F(ServicesTest, EveryMethodAsksTheTable) {
  for (const auto* method : Declared(OfAJob())) {
    for (const Role role : kRoles) {
      SCOPED_TRACE(absl::StrCat(method->full_name(), " by ", RoleName(role)));
      // Heartbeats without a role are a worker's.
      if (method->name() == "Heartbeat" && role == Role::kServer) continue;
      const grpc::Status status = Call(*method, role);
      const bool allowed = CallersOf(method->full_name()).Has(role);
      EXPECT_EQ(status.error_code() == grpc::StatusCode::PERMISSION_DENIED, !allowed) << status.error_message();
      EXPECT_THAT(status.error_message(), testing::Not(HasSubstr("failed to connect")));
      EXPECT_NE(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << status.error_message();
      if (allowed) continue;
      EXPECT_THAT(status.error_message(), HasSubstr(absl::StrCat(RoleName(role), " of job first")));
      EXPECT_THAT(status.error_message(), HasSubstr(absl::StrCat("calls ", method->full_name(), "; allowed is ",
                                                                 CallersOf(method->full_name()).ToString())));
    }
  }
}

// Its certificate is not for listening, whatever the client would expect it to say.
TEST_F(ServicesTest, AWorkerIsNotBelievedToBeAServer) {
  scheduler_.reset();
  const Security worker = credentials_.For(Role::kWorker);
  const auto false_one = scheduler::SchedulerServer::Start("127.0.0.1:0", controller_, worker);
  ASSERT_TRUE(false_one.ok());
  const auto channel = rpc::ControlChannel(absl::StrCat("127.0.0.1:", (*false_one)->port()),
                                           credentials_.For(Role::kServer).To(Role::kWorker));
  wire::GetStatusReply reply;
  const grpc::Status status =
      wire::Scheduler::NewStub(channel)->GetStatus(rpc::ContextWithTimeout(absl::Seconds(20)).get(), {}, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("certificate verify failed"));
  EXPECT_TRUE(rpc::IsMistrust(rpc::FromGrpc(status)));
}

TEST_F(ServicesTest, HeartbeatsAreOnesOwn) {
  for (const auto& [role, said] :
       {std::pair(Role::kServer, wire::MEMBER_ROLE_WORKER), std::pair(Role::kWorker, wire::MEMBER_ROLE_SERVER)}) {
    wire::HeartbeatRequest request;
    request.set_job(77);
    request.set_role(said);
    wire::HeartbeatReply reply;
    const auto stub = wire::Scheduler::NewStub(ChannelTo("slackline.wire.Scheduler", role));
    const grpc::Status status = stub->Heartbeat(rpc::ContextWithTimeout(absl::Seconds(20)).get(), request, &reply);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << status.error_message();
    EXPECT_THAT(status.error_message(),
                HasSubstr(absl::StrCat("found a ", RoleName(role), " of job first that wants to send a")));
  }
}

}  // namespace
}  // namespace slackline::security::methods_test
