#include "worker/machine/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slackline::worker::devices_test {
namespace {

using ::testing::ElementsAre;

constexpr Device kCpu = {};
constexpr Device Gpu(uint32_t index) { return {.kind = Device::Kind::kCuda, .index = index}; }

const GpusHere& NoGpus() {
  static const GpusHere none = {.names = {}, .why_none = "the driver is too old"};
  return none;
}
const GpusHere& TwoGpus() {
  static const GpusHere two = {.names = {"H100", "A100"}, .why_none = ""};
  return two;
}

std::string MessageOf(const std::vector<std::string>& wanted, const GpusHere& here) {
  const auto devices = ResolveDevices(wanted, here);
  EXPECT_EQ(devices.status().code(), absl::StatusCode::kFailedPrecondition);
  return std::string(devices.status().message());
}

TEST(Devices, ANameHasOneFormAndComesBack) {
  for (const char* name : {"cpu", "cuda:0", "cuda:1", "cuda:1023"}) {
    const std::optional<Device> device = ParseDevice(name);
    ASSERT_TRUE(device) << name;
    EXPECT_EQ(ToString(*device), name);
  }
  for (const char* name : {"", "cpu:0", "cuda", "cuda:", "cuda:-1", "cuda:+1", "cuda: 1", "cuda:01", "cuda:1024", "CPU",
                           "cuda:4294967296", "gpu:0", "auto"}) {
    EXPECT_FALSE(ParseDevice(name)) << name;
  }
}

TEST(Devices, AreThoseThatWereNamedInTheirOrder) {
  EXPECT_THAT(*ResolveDevices({"cuda:1", "cuda:0"}, TwoGpus()), ElementsAre(Gpu(1), Gpu(0)));
  EXPECT_THAT(*ResolveDevices({"cpu", "cpu"}, TwoGpus()), ElementsAre(kCpu, kCpu));
}

TEST(Devices, NoneNamedMeansOneCpu) { EXPECT_THAT(*ResolveDevices({}, TwoGpus()), ElementsAre(kCpu)); }

TEST(Devices, AutoTakesAllGpusOrOneCpu) {
  EXPECT_THAT(*ResolveDevices({"auto"}, TwoGpus()), ElementsAre(Gpu(0), Gpu(1)));
  EXPECT_THAT(*ResolveDevices({"auto"}, NoGpus()), ElementsAre(kCpu));
}

TEST(Devices, OneThatIsNotHereIsNamedWithThoseThatAre) {
  EXPECT_EQ(MessageOf({"cuda:0", "cuda:2"}, TwoGpus()),
            "worker.devices: cuda:2 was asked for; here are cuda:0 (H100), cuda:1 (A100)");
  EXPECT_EQ(ResolveDevices({"cuda:2"}, TwoGpus(), "worker.groups[1].devices").status().message(),
            "worker.groups[1].devices: cuda:2 was asked for; here are cuda:0 (H100), cuda:1 (A100)");
  EXPECT_EQ(MessageOf({"cuda:1"}, {.names = {"H100"}, .why_none = ""}),
            "worker.devices: cuda:1 was asked for; here is cuda:0 (H100)");
  EXPECT_EQ(MessageOf({"cuda:0"}, NoGpus()),
            "worker.devices: cuda:0 was asked for; here is none: the driver is too old");
}

}  // namespace
}  // namespace slackline::worker::devices_test
