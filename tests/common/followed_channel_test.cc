// A channel that is dropped, as the other side sees it.
#include "common/rpc/followed_channel.h"

#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include "scheduler.grpc.pb.h"

namespace slackline::rpc::followed_channel_test {
namespace {

// A client that makes no calls reads nothing either: a server that ends asks it whether it has heard, and waits.
// Without a channel there is no connection.
TEST(FollowedChannel, OneThatIsDroppedHoldsNoConnection) {
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
  const std::weak_ptr<grpc::Channel> connected = channel.channel();
  channel.Drop();
  EXPECT_TRUE(connected.expired());
  EXPECT_EQ(channel.channel()->GetState(/*try_to_connect=*/false), GRPC_CHANNEL_IDLE);
  EXPECT_EQ(call(), grpc::StatusCode::UNIMPLEMENTED) << "a late call connects again";
}

}  // namespace
}  // namespace slackline::rpc::followed_channel_test
