// A channel that is dropped, as the other side sees it.
#include "common/rpc/followed_channel.h"

#include <chrono>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include "scheduler.grpc.pb.h"

namespace slackline::rpc {
namespace {

// A client that makes no calls reads nothing either: a server that ends asks it whether it has heard, and waits.
TEST(FollowedChannel, NobodyWaitsForOneThatIsDropped) {
  wire::Scheduler::Service service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  FollowedChannel channel("127.0.0.1:" + std::to_string(port));
  const auto call = [&] {
    const auto context = ContextWithTimeout(absl::Seconds(10));
    wire::GetStatusReply reply;
    return wire::Scheduler::NewStub(channel.channel())->GetStatus(context.get(), {}, &reply).error_code();
  };
  EXPECT_EQ(call(), grpc::StatusCode::UNIMPLEMENTED) << "it has connected";
  channel.Drop();
  EXPECT_EQ(call(), grpc::StatusCode::UNIMPLEMENTED) << "a late call connects again";
  channel.Drop();
  const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(10);
  server->Shutdown(deadline);
  EXPECT_LT(std::chrono::system_clock::now(), deadline);
}

}  // namespace
}  // namespace slackline::rpc
