#include "common/power/energy_tally.h"

#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include "absl/synchronization/notification.h"
#include "common/power/energy_sampler.h"
#include "common/power/meter_watch.h"
#include "common/power/node_series.h"

namespace slackline::power::energy_tally_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

DeviceReading Counter(double joules) {
  DeviceReading reading;
  reading.device = "package-0";
  reading.joules = joules;
  return reading;
}

DeviceReading Power(double watts) {
  DeviceReading reading;
  reading.device = "gpu-0000:65:00.0";
  reading.watts = watts;
  return reading;
}

TEST(EnergyTally, CountersGiveEnergyAndPower) {
  EnergyTally tally(At(0));
  tally.Enter(Phase::kTraining, At(0));
  tally.Add({Counter(100)}, At(1));
  EXPECT_EQ(tally.devices()[0].joules.total(), 0);  // what was before is not its own
  tally.Add({Counter(130)}, At(1.5));
  EXPECT_DOUBLE_EQ(tally.devices()[0].joules.training, 30);
  EXPECT_DOUBLE_EQ(tally.devices()[0].watts, 60);
  EXPECT_EQ(tally.until(), At(1.5));
}

std::vector<double> Watts(const std::vector<PowerSample>& samples) {
  std::vector<double> watts;
  for (const PowerSample& sample : samples) watts.push_back(sample.watts);
  return watts;
}

TEST(EnergyTally, EachReadingThatShowsPowerIsASample) {
  EnergyTally tally(At(0));
  EXPECT_THAT(Watts(tally.Add({Counter(100), Power(50)}, At(1))), ElementsAre(50));
  const std::vector<PowerSample> samples = tally.Add({Counter(130), Power(70)}, At(1.5));
  EXPECT_THAT(Watts(samples), ElementsAre(60, 70));
  EXPECT_EQ(samples[0].device, "package-0");
  EXPECT_EQ(samples[0].at, At(1.5));
  // A counter that has moved by a step or two tells nothing of the power; its energy counts.
  EXPECT_THAT(tally.Add({Counter(131)}, At(1.502)), testing::IsEmpty());
  EXPECT_DOUBLE_EQ(tally.devices()[1].watts, 60);
  EXPECT_THAT(Watts(tally.Add({Counter(150)}, At(2))), ElementsAre(40));
  EXPECT_DOUBLE_EQ(tally.devices()[1].joules.total(), 50);
}

TEST(EnergyTally, PowerIsIntegratedByTrapezoids) {
  EnergyTally tally(At(0));
  tally.Enter(Phase::kTraining, At(0));
  tally.Add({Power(100)}, At(0));
  tally.Add({Power(200)}, At(0.5));
  tally.Add({Power(200)}, At(1));
  EXPECT_DOUBLE_EQ(tally.devices()[0].joules.training, 0.5 * 150 + 0.5 * 200);
  EXPECT_DOUBLE_EQ(tally.devices()[0].watts, 200);
}

TEST(EnergyTally, EnergyGoesToPhasesByTheirTime) {
  EnergyTally tally(At(0));
  tally.Add({Power(100)}, At(0));
  tally.Enter(Phase::kTraining, At(1));
  tally.Enter(Phase::kValidation, At(3));
  tally.Enter(Phase::kTraining, At(3.5));
  tally.Add({Power(100)}, At(4));
  tally.Enter(Phase::kTest, At(4));
  tally.Add({Power(100)}, At(6));
  const PhaseJoules joules = tally.devices()[0].joules;
  EXPECT_DOUBLE_EQ(joules.other, 100);
  EXPECT_DOUBLE_EQ(joules.training, 250);
  EXPECT_DOUBLE_EQ(joules.validation, 50);
  EXPECT_DOUBLE_EQ(joules.test, 200);
}

TEST(EnergyTally, DeviceThatWasNotReadForAWhileLosesNothing) {
  EnergyTally tally(At(0));
  tally.Enter(Phase::kTraining, At(0));
  tally.Add({Counter(0), Power(100)}, At(0));
  tally.Add({Power(100)}, At(1));
  tally.Enter(Phase::kTest, At(1));
  tally.Add({Counter(20), Power(100)}, At(2));
  EXPECT_DOUBLE_EQ(tally.devices()[0].joules.total(), 200);
  EXPECT_EQ(tally.devices()[1].device, "package-0");
  EXPECT_DOUBLE_EQ(tally.devices()[1].joules.training, 10);
  EXPECT_DOUBLE_EQ(tally.devices()[1].joules.test, 10);
}

TEST(EnergyTally, PhasesOfALongSilenceAreForgottenAndNoEnergyIs) {
  EnergyTally tally(At(0));
  tally.Add({Counter(0)}, At(0));
  for (int i = 0; i < 3000; ++i) tally.Enter(i % 2 == 0 ? Phase::kTraining : Phase::kValidation, At(i));
  tally.Add({Counter(3000)}, At(3000));
  EXPECT_NEAR(tally.devices()[0].joules.total(), 3000, 1e-6);
}

// A counter of 1 J a reading.
class CountingMeter : public PowerMeter {
 public:
  std::vector<DeviceReading> Read() override { return {Counter(joules_++)}; }

 private:
  double joules_ = 0;
};

TEST(EnergySampler, SamplesAtOnceAndWhenThePhaseChanges) {
  std::vector<std::unique_ptr<PowerMeter>> meters;
  meters.push_back(std::make_unique<CountingMeter>());
  absl::Notification first, second;
  int samples = 0;
  EnergySampler sampler(std::move(meters), absl::Hours(1), [&](const EnergyTotals& totals) {
    EXPECT_EQ(totals.devices.size(), 1u);
    if (++samples == 1) first.Notify();
    if (samples == 2) second.Notify();
  });
  ASSERT_TRUE(first.WaitForNotificationWithTimeout(absl::Seconds(60)));
  sampler.Enter(Phase::kTraining);
  ASSERT_TRUE(second.WaitForNotificationWithTimeout(absl::Seconds(60)));
  const EnergyTotals totals = sampler.Take();
  EXPECT_DOUBLE_EQ(totals.devices[0].joules.total(), 1);
  EXPECT_GE(totals.until, totals.since);
}

// Shows these powers, one a reading, and the last one for ever.
class ScriptedMeter : public PowerMeter {
 public:
  explicit ScriptedMeter(std::vector<double> watts) : watts_(std::move(watts)) {}
  std::vector<DeviceReading> Read() override {
    const double now = watts_.front();
    if (watts_.size() > 1) watts_.erase(watts_.begin());
    return {Power(now)};
  }

 private:
  std::vector<double> watts_;
};

TEST(EnergySampler, KeepsSamplesUntilTheyAreConfirmed) {
  std::vector<std::unique_ptr<PowerMeter>> meters;
  meters.push_back(std::make_unique<ScriptedMeter>(std::vector<double>{50, 60}));
  absl::Notification first, second;
  IdlePower idle;
  idle.watts["gpu-0000:65:00.0"] = 20;
  idle.samples.push_back({"gpu-0000:65:00.0", absl::UnixEpoch(), 20});
  EnergySampler sampler(
      std::move(meters), absl::Hours(1),
      [&](const EnergyTotals& totals) { (totals.devices[0].watts == 50 ? first : second).Notify(); }, idle);
  ASSERT_TRUE(first.WaitForNotificationWithTimeout(absl::Seconds(60)));
  const EnergyTotals before = sampler.Take();
  EXPECT_THAT(Watts(before.samples), ElementsAre(20, 50));
  EXPECT_EQ(before.idle_watts.at("gpu-0000:65:00.0"), 20);
  sampler.Enter(Phase::kTraining);
  ASSERT_TRUE(second.WaitForNotificationWithTimeout(absl::Seconds(60)));
  EXPECT_THAT(Watts(sampler.Take().samples), ElementsAre(20, 50, 60));
  sampler.Confirm(before.until);
  EXPECT_THAT(Watts(sampler.Take().samples), ElementsAre(60));
  EXPECT_EQ(sampler.Take().idle_watts.at("gpu-0000:65:00.0"), 20);
}

TEST(MeasureIdle, IsTheMedianOfItsSamples) {
  std::vector<std::unique_ptr<PowerMeter>> meters;
  // Other processes start meanwhile.
  meters.push_back(std::make_unique<ScriptedMeter>(std::vector<double>{500, 40, 41}));
  const IdlePower idle = MeasureIdle(std::move(meters), absl::Milliseconds(1), absl::Milliseconds(50));
  ASSERT_GE(idle.samples.size(), 4u);
  EXPECT_EQ(idle.samples[0].watts, 500);
  EXPECT_EQ(idle.watts.at("gpu-0000:65:00.0"), 41);
  EXPECT_TRUE(MeasureIdle({}, absl::Milliseconds(1), absl::Milliseconds(2)).watts.empty());
}

TEST(NodeSeries, HasNodeAndDeviceAndOnlyWhatIsKnown) {
  Metrics metrics;
  NodeSeries series(metrics, "n1");
  DeviceTotals device;
  device.device = "package-0";
  device.joules.training = 5;
  device.watts = 60;
  series.Publish({device});
  device.joules.test = 2;
  series.Publish({device});
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("slackline_node_energy_joules_total{device=\"package-0\",node=\"n1\"} 7"));
  EXPECT_THAT(text, HasSubstr("slackline_node_power_watts{device=\"package-0\",node=\"n1\"} 60"));
  EXPECT_THAT(text, Not(HasSubstr("slackline_node_gpu")));
  EXPECT_THAT(text, Not(HasSubstr("celsius")));
}

EnergyTotals Sampled(int second, double joules, int read_at) {
  EnergyTotals totals;
  totals.until = absl::FromUnixSeconds(second);
  DeviceTotals& device = totals.devices.emplace_back();
  device.device = "package-0";
  device.joules.training = joules;
  device.reading.joules = joules;
  device.read_at = absl::FromUnixSeconds(read_at);
  return totals;
}

TEST(MeterWatch, SilenceIsSaidOnce) {
  MeterWatch watch;
  EXPECT_THAT(watch.Look(Sampled(100, 5, 100)), testing::IsEmpty());
  EXPECT_THAT(watch.Look(Sampled(110, 5, 100)), testing::IsEmpty());
  EXPECT_THAT(
      watch.Look(Sampled(111, 5, 100)),
      testing::ElementsAre("the meter of package-0 has said nothing for 11s; its energy since then is not counted"));
  EXPECT_THAT(watch.Look(Sampled(300, 5, 100)), testing::IsEmpty());
}

TEST(MeterWatch, AMeterThatStandsStillIsSaidOnce) {
  MeterWatch watch;
  for (int second = 100; second <= 160; ++second)
    EXPECT_THAT(watch.Look(Sampled(second, 7, second)), testing::IsEmpty());
  EXPECT_THAT(watch.Look(Sampled(161, 7, 161)),
              testing::ElementsAre("the meter of package-0 stands still: it has counted 7 J, and nothing for 1m1s"));
  EXPECT_THAT(watch.Look(Sampled(400, 7, 400)), testing::IsEmpty());
}

TEST(MeterWatch, AMeterThatMovesIsNotMentioned) {
  MeterWatch watch;
  for (int second = 100; second <= 400; second += 50) {
    EXPECT_THAT(watch.Look(Sampled(second, second, second)), testing::IsEmpty());
  }
}

}  // namespace
}  // namespace slackline::power::energy_tally_test
