#include <map>

#include <gmock/gmock.h>
#include "common/power/amdgpu_meter.h"
#include "common/power/find_meters.h"
#include "common/power/nvml_meter.h"
#include "common/power/rapl_meter.h"
#include "common/process/dynamic_library.h"
#include "tests/common/power_fixture.h"

namespace slackline::power::power_meters_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

using RaplTest = SysfsTest;
using AmdgpuTest = SysfsTest;
using FindMetersTest = SysfsTest;

std::map<std::string, double> JoulesOf(PowerMeter& meter) {
  std::map<std::string, double> joules;
  for (const DeviceReading& reading : meter.Read()) joules[reading.device] = reading.joules.value_or(-1);
  return joules;
}

TEST_F(RaplTest, PackagesAndTheirDramCountAndNothingTwice) {
  const auto write = [this](uint64_t energy_uj) {
    WriteZone("intel-rapl:0", "package-0", energy_uj);
    WriteZone("intel-rapl:0:0", "core", energy_uj);
    WriteZone("intel-rapl:0:1", "dram", energy_uj / 10);
    WriteZone("intel-rapl:1", "package-1", 2 * energy_uj);
    WriteZone("intel-rapl:2", "psys", 9 * energy_uj);
    WriteZone("intel-rapl-mmio:0", "package-0", energy_uj);
  };
  write(1000000);
  const auto meter = OpenRapl(root_);
  ASSERT_TRUE(meter.ok()) << meter.status();
  write(4000000);
  EXPECT_THAT(JoulesOf(**meter), ElementsAre(Pair("package-0", testing::DoubleNear(3, 1e-9)),
                                             Pair("package-0-dram", testing::DoubleNear(0.3, 1e-9)),
                                             Pair("package-1", testing::DoubleNear(6, 1e-9))));
}

TEST_F(RaplTest, CounterThatBeginsAgainGoesOn) {
  WriteZone("intel-rapl:0", "package-0", 999000000);
  const auto meter = OpenRapl(root_);
  ASSERT_TRUE(meter.ok());
  WriteZone("intel-rapl:0", "package-0", 2000000);
  EXPECT_NEAR(JoulesOf(**meter)["package-0"], 3, 1e-9);
}

TEST_F(RaplTest, CounterThatIsSetBackCountsOnFromThere) {
  WriteZone("intel-rapl:0", "package-0", 2000000);
  const auto meter = OpenRapl(root_);
  ASSERT_TRUE(meter.ok());
  WriteZone("intel-rapl:0", "package-0", 1000000);
  EXPECT_NEAR(JoulesOf(**meter)["package-0"], 0, 1e-9);
  WriteZone("intel-rapl:0", "package-0", 4000000);
  EXPECT_NEAR(JoulesOf(**meter)["package-0"], 3, 1e-9);
}

TEST_F(RaplTest, CounterThatCannotBeReadNowIsLeftOut) {
  WriteZone("intel-rapl:0", "package-0", 1000000);
  const auto meter = OpenRapl(root_);
  ASSERT_TRUE(meter.ok());
  std::filesystem::remove(root_ / "class/powercap/intel-rapl:0/energy_uj");
  EXPECT_THAT((*meter)->Read(), IsEmpty());
  WriteZone("intel-rapl:0", "package-0", 5000000);
  EXPECT_NEAR(JoulesOf(**meter)["package-0"], 4, 1e-9);
}

TEST_F(RaplTest, ACounterThatHasNeverCountedIsNone) {
  WriteZone("intel-rapl:0", "package-0", 0);
  WriteZone("intel-rapl:0:0", "dram", 0);
  EXPECT_TRUE(absl::IsNotFound(OpenRapl(root_).status()));
  const MetersFound found = FindMeters({.sysfs = root_, .nvml_library = "libno-such-thing.so.1", .gpus = std::nullopt});
  EXPECT_THAT(found.meters, IsEmpty());
  EXPECT_THAT(found.complaints, IsEmpty());
  WriteZone("intel-rapl:0", "package-0", 5);
  const auto meter = OpenRapl(root_);
  ASSERT_TRUE(meter.ok()) << meter.status();
  EXPECT_THAT(JoulesOf(**meter), ElementsAre(Pair("package-0", 0)));
}

TEST_F(RaplTest, WhereNothingMayBeReadItSaysWhatToDo) {
  EXPECT_TRUE(absl::IsNotFound(OpenRapl(root_).status()));
  // For root, too, a folder is no counter.
  Write("class/powercap/intel-rapl:0/name", "package-0");
  std::filesystem::create_directories(root_ / "class/powercap/intel-rapl:0/energy_uj");
  const absl::Status status = OpenRapl(root_).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("chmod a+r"));
}

class NvmlTest : public testing::Test {
 protected:
  ~NvmlTest() override { Break(0); }
  void At(long long ms) { library_.Find<void(long long)>("fake_nvml_set_ms")(ms); }
  void Break(int is_broken) { library_.Find<void(int)>("fake_nvml_break")(is_broken); }

  const DynamicLibrary library_{FAKE_NVML};
};

TEST_F(NvmlTest, ReadsEnergyPowerUseMemoryAndTemperature) {
  At(1000);
  const auto meter = OpenNvml(FAKE_NVML, std::nullopt);
  ASSERT_TRUE(meter.ok()) << meter.status();
  At(3500);
  const std::vector<DeviceReading> readings = (*meter)->Read();
  ASSERT_EQ(readings.size(), 2u);
  EXPECT_EQ(readings[0].device, "gpu-0000:65:00.0");
  EXPECT_DOUBLE_EQ(*readings[0].joules, 200 * 2.5);
  EXPECT_DOUBLE_EQ(*readings[0].watts, 200);
  EXPECT_DOUBLE_EQ(*readings[0].gpu_ratio, 0.75);
  EXPECT_DOUBLE_EQ(*readings[0].gpu_memory_bytes, 2.0 * (1ull << 30));
  EXPECT_DOUBLE_EQ(*readings[0].celsius, 60);
  // Which has no counter.
  EXPECT_EQ(readings[1].device, "gpu-0000:b3:00.0");
  EXPECT_FALSE(readings[1].joules);
  EXPECT_DOUBLE_EQ(*readings[1].watts, 100);
}

TEST_F(NvmlTest, OnlyTheGpusChosen) {
  const auto meter = OpenNvml(FAKE_NVML, GpuChoice({PciAddress("0000:B3:00.0")}));
  ASSERT_TRUE(meter.ok()) << meter.status();
  ASSERT_EQ((*meter)->Read().size(), 1u);
  EXPECT_EQ((*meter)->Read()[0].device, "gpu-0000:b3:00.0");
  const absl::Status other = OpenNvml(FAKE_NVML, GpuChoice({"0000:01:00.0"})).status();
  EXPECT_TRUE(absl::IsNotFound(other));
  EXPECT_THAT(std::string(other.message()), HasSubstr("0000:65:00.0, 0000:b3:00.0; wanted 0000:01:00.0"));
}

TEST_F(NvmlTest, SaysWhatTheLibrarySays) {
  Break(1);
  const absl::Status status = OpenNvml(FAKE_NVML, std::nullopt).status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("Driver Not Loaded"));
  EXPECT_TRUE(absl::IsNotFound(OpenNvml("libno-such-thing.so.1", std::nullopt).status()));
  EXPECT_TRUE(absl::IsUnavailable(OpenNvml("libm.so.6", std::nullopt).status()));
}

TEST_F(AmdgpuTest, ReadsTheDriversFiles) {
  const auto card = [this](const std::string& name, const std::string& address, const std::string& driver) {
    const std::string folder = absl::StrCat("class/drm/", name, "/device/");
    Write(folder + "uevent", absl::StrCat("DRIVER=", driver, "\nPCI_SLOT_NAME=", address));
    Write(folder + "hwmon/hwmon3/name", driver);
    Write(folder + "hwmon/hwmon3/power1_average", "150000000");
    Write(folder + "hwmon/hwmon3/temp1_input", "55000");
    Write(folder + "gpu_busy_percent", "40");
    Write(folder + "mem_info_vram_used", "1048576");
  };
  EXPECT_TRUE(absl::IsNotFound(OpenAmdgpu(root_, std::nullopt).status()));
  card("card0", "0000:03:00.0", "amdgpu");
  card("card1", "0000:00:02.0", "i915");
  Write("class/drm/card0-DP-1/status", "connected");
  const auto meter = OpenAmdgpu(root_, std::nullopt);
  ASSERT_TRUE(meter.ok()) << meter.status();
  const std::vector<DeviceReading> readings = (*meter)->Read();
  ASSERT_EQ(readings.size(), 1u);
  EXPECT_EQ(readings[0].device, "gpu-0000:03:00.0");
  EXPECT_FALSE(readings[0].joules);
  EXPECT_DOUBLE_EQ(*readings[0].watts, 150);
  EXPECT_DOUBLE_EQ(*readings[0].gpu_ratio, 0.4);
  EXPECT_DOUBLE_EQ(*readings[0].gpu_memory_bytes, 1048576);
  EXPECT_DOUBLE_EQ(*readings[0].celsius, 55);
  EXPECT_FALSE(OpenAmdgpu(root_, GpuChoice({"0000:04:00.0"})).ok());
}

TEST_F(FindMetersTest, TakesWhatIsThereAndComplainsOfWhatShouldBe) {
  const MeterOptions nothing = {.sysfs = root_, .nvml_library = "libno-such-thing.so.1", .gpus = std::nullopt};
  EXPECT_THAT(FindMeters(nothing).meters, IsEmpty());
  EXPECT_THAT(FindMeters(nothing).complaints, IsEmpty());
  WriteZone("intel-rapl:0", "package-0", 1000000);
  MeterOptions all = {.sysfs = root_, .nvml_library = FAKE_NVML, .gpus = std::nullopt};
  EXPECT_EQ(FindMeters(all).meters.size(), 2u);
  all.gpus = std::vector<std::string>();
  EXPECT_EQ(FindMeters(all).meters.size(), 1u);
  // The worker computes on it, and nobody meters it.
  all.gpus = std::vector<std::string>({"0000:01:00.0"});
  EXPECT_EQ(FindMeters(all).meters.size(), 1u);
  EXPECT_THAT(FindMeters(all).complaints, ElementsAre(HasSubstr("wanted 0000:01:00.0")));
}

}  // namespace
}  // namespace slackline::power::power_meters_test
