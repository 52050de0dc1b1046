#include "common/base/protocol_version.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "scheduler.pb.h"

namespace slackline::protocol_version_test {
namespace {

using testing::HasSubstr;

const ProtocolVersion kOwn = {.major = 2, .minor = 3, .build = "0.9.0 (abc)"};

TEST(CheckProtocol, OtherMajorIsRefusedWithBothVersionsAndAdvice) {
  for (const uint32_t major : {0u, 1u, 3u}) {
    const absl::Status refused = CheckProtocol("worker w-1", {.major = major, .minor = 7, .build = "1.0 (def)"}, kOwn);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("worker w-1 speaks protocol " + std::to_string(major) + ".7"));
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("(slackline 1.0 (def)); this process speaks 2.3 (slackline 0.9.0"));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("programs of one version"));
  }
}

TEST(CheckProtocol, OtherMinorIsAcceptedAndNamedIfNewer) {
  for (const uint32_t minor : {0u, 3u, 9u}) {
    const ProtocolVersion theirs = {.major = 2, .minor = minor, .build = ""};
    EXPECT_TRUE(CheckProtocol("x", theirs, kOwn).ok());
    EXPECT_EQ(NewerProtocol("x", theirs, kOwn).empty(), minor <= 3) << minor;
  }
  EXPECT_THAT(NewerProtocol("x", {.major = 2, .minor = 9, .build = ""}, kOwn),
              HasSubstr("x speaks protocol 2.9, which"));
  EXPECT_EQ(NewerProtocol("x", {.major = 3, .minor = 9, .build = ""}, kOwn), "") << "it is refused";
}

TEST(CheckProtocol, TextOfAPeerStaysOneShortLine) {
  const std::string build = "\n\x01" + std::string(5000, 'x');
  const std::string message(CheckProtocol("x", {.major = 9, .minor = 0, .build = build}, kOwn).message());
  EXPECT_LT(message.size(), 400u);
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST(ProtocolOf, PeerWithoutVersionSpeaksTheFirst) {
  wire::RegisterWorkerRequest request;
  EXPECT_EQ(ProtocolOf(request).major, 1u);
  EXPECT_EQ(ProtocolOf(request).minor, 0u);
  EXPECT_TRUE(CheckProtocol("x", ProtocolOf(request)).ok()) << "0.1.0 is understood";
  SetProtocol(request);
  EXPECT_EQ(ProtocolOf(request).major, OwnProtocol().major);
  EXPECT_EQ(ProtocolOf(request).minor, OwnProtocol().minor);
  EXPECT_THAT(ProtocolOf(request).build, HasSubstr("0."));
}

}  // namespace
}  // namespace slackline::protocol_version_test
