// Free text in messages that is not UTF-8, or too long.
#include "common/rpc/message_text.h"

#include <memory>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/channel.h"
#include "common/text/utf8.h"
#include "scheduler.grpc.pb.h"

namespace slackline::message_text_test {
namespace {

TEST(ValidText, KeepsUtf8AndReplacesOtherBytes) {
  const std::pair<std::string, std::string> kGolden[] = {
      {"", ""},
      {"plain", "plain"},
      {"ung\xc3\xbcltig \xe2\x82\xac \xf0\x9f\x98\x80", "ung\xc3\xbcltig \xe2\x82\xac \xf0\x9f\x98\x80"},
      {"ung\xfcltig", "ung\xef\xbf\xbdltig"},
      {"cut \xe2\x82", "cut \xef\xbf\xbd\xef\xbf\xbd"},
      {"surrogate \xed\xa0\x80!", "surrogate \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd!"},
      {"overlong \xc0\x80", "overlong \xef\xbf\xbd\xef\xbf\xbd"},
  };
  for (const auto& [text, valid] : kGolden) {
    EXPECT_EQ(ValidText(text), valid);
    EXPECT_TRUE(IsUtf8(ValidText(text)));
    EXPECT_EQ(IsUtf8(text), text == valid) << valid;
  }
}

TEST(OneLine, EscapesControlCharacters) {
  EXPECT_EQ(OneLine("a \x1b[2J\nb\tc \x7f, \"ünterwegs\" \\"), "a \\x1b[2J\\nb\\x09c \\x7f, \"ünterwegs\" \\");
  EXPECT_EQ(OneLine("\xc2\x9b|\xc2\xa0|\xc2"), "\\x9b|\xc2\xa0|\xc2");
}

TEST(ValidText, IsCutBetweenLetters) {
  EXPECT_EQ(ValidText("123456", 6), "123456");
  EXPECT_EQ(ValidText("1234567", 6), "123...");
  EXPECT_EQ(ValidText("12\xe2\x82\xac"
                      "67",
                      6),
            "12...");
  EXPECT_EQ(ValidText("1234", 3), "...");
  const std::string bytes(100000, '\xff');
  EXPECT_LE(ValidText(bytes).size(), kFreeTextBytesMax);
  EXPECT_TRUE(IsUtf8(ValidText(bytes)));
}

TEST(MendText, ReachesEveryString) {
  wire::GetStatusReply reply;
  reply.set_reason("\xff");
  reply.add_events("fine");
  reply.add_events("\xfe");
  reply.add_members()->set_name("w-1");
  reply.add_members()->set_reason(std::string(100000, 'x'));
  EXPECT_FALSE(rpc::HasValidText(reply));
  const std::string names = reply.members(0).SerializeAsString();
  rpc::MendText(reply);
  EXPECT_TRUE(rpc::HasValidText(reply));
  EXPECT_EQ(reply.reason(), "\xef\xbf\xbd");
  EXPECT_EQ(reply.events(0), "fine");
  EXPECT_EQ(reply.events(1), "\xef\xbf\xbd");
  EXPECT_EQ(reply.members(0).SerializeAsString(), names);
  EXPECT_EQ(reply.members(1).reason().size(), kFreeTextBytesMax);
  EXPECT_TRUE(wire::GetStatusReply().ParseFromString(reply.SerializeAsString()));
}

// Keeps what it hears, and answers with an error.
class Listener : public wire::Scheduler::Service {
 public:
  grpc::Status StopJob(grpc::ServerContext* /*context*/, const wire::StopJobRequest* request,
                       wire::StopJobReply* /*reply*/) override {
    absl::MutexLock lock(&mutex_);
    heard_ = request->reason();
    return rpc::ToGrpc(answer_);
  }
  std::string heard() {
    absl::MutexLock lock(&mutex_);
    return heard_;
  }
  void SetAnswer(absl::Status answer) {
    absl::MutexLock lock(&mutex_);
    answer_ = std::move(answer);
  }

 private:
  absl::Mutex mutex_;
  std::string heard_ ABSL_GUARDED_BY(mutex_);
  absl::Status answer_ ABSL_GUARDED_BY(mutex_);
};

class ControlChannelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&listener_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    stub_ = wire::Scheduler::NewStub(rpc::ControlChannel(absl::StrCat("127.0.0.1:", port)));
  }
  absl::Status Say(const std::string& reason) {
    wire::StopJobRequest request;
    request.set_reason(reason);
    wire::StopJobReply reply;
    const auto context = rpc::ContextWithTimeout(absl::Seconds(30));
    return rpc::FromGrpc(stub_->StopJob(context.get(), request, &reply));
  }

  Listener listener_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<wire::Scheduler::Stub> stub_;
};

TEST_F(ControlChannelTest, RequestsArriveWhateverTheirText) {
  EXPECT_EQ(Say("ung\xfcltig"), absl::OkStatus());
  EXPECT_EQ(listener_.heard(), "ung\xef\xbf\xbdltig");
  EXPECT_EQ(Say("fine"), absl::OkStatus());
  EXPECT_EQ(listener_.heard(), "fine");
  EXPECT_EQ(Say(std::string(1 << 20, 'x')), absl::OkStatus());
  EXPECT_EQ(listener_.heard().size(), kFreeTextBytesMax);
}

TEST_F(ControlChannelTest, ALongErrorArrivesWithItsCode) {
  for (const std::string letter : {"x", "%", "\xc3\xa9", "\xff"}) {
    std::string text = "the first word ";
    while (text.size() < 50000) text += letter;
    listener_.SetAnswer(absl::InvalidArgumentError(text));
    const absl::Status said = Say("");
    EXPECT_EQ(said.code(), absl::StatusCode::kInvalidArgument) << said.message().substr(0, 100);
    EXPECT_EQ(said.message().substr(0, 15), "the first word ");
    EXPECT_TRUE(IsUtf8(said.message()));
  }
}

}  // namespace
}  // namespace slackline::message_text_test
