#include "scheduler/watch/energy_ledger.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "scheduler/watch/progress.h"

namespace slackline::scheduler::energy_ledger_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

const WorkerId kFirstWorker(1);
const WorkerId kSecondWorker(2);
const absl::Time kNow = absl::UnixEpoch();

struct Window {
  double since = 0;
  double until = 0;
};

// Of node n1, or of another machine; the device is its package, at 100 W of training since the beginning.
wire::NodeEnergy Report(const Window& window, const std::string& machine = "m1") {
  wire::NodeEnergy energy;
  energy.set_node("n1");
  energy.set_machine(machine);
  energy.set_since_us(static_cast<int64_t>(1e6 * window.since));
  energy.set_until_us(static_cast<int64_t>(1e6 * window.until));
  wire::DeviceEnergy& device = *energy.add_devices();
  device.set_device("package-0");
  device.set_watts(100);
  device.mutable_joules()->set_training(100 * (window.until - window.since));
  return energy;
}

TEST(EnergyLedger, WorkersOfOneNodeCountItsPackageOnce) {
  EnergyLedger ledger;
  EXPECT_FALSE(ledger.metered());
  // Both meter from their start on, and their words come in turns.
  for (double t = 1; t <= 10; ++t) {
    ledger.Heard(kFirstWorker, Report({0, t}), kNow);
    ledger.Heard(kSecondWorker, Report({0.25, t + 0.5}), kNow);
  }
  EXPECT_TRUE(ledger.metered());
  EXPECT_NEAR(ledger.total_joules(), 100 * 10.5, 1e-6);
  EXPECT_EQ(ledger.View(1).devices_size(), 1);
}

TEST(EnergyLedger, MachinesAndDevicesAddUp) {
  EnergyLedger ledger;
  wire::NodeEnergy two = Report({0, 10});
  *two.add_devices() = two.devices(0);
  two.mutable_devices(1)->set_device("gpu-0000:65:00.0");
  ledger.Heard(kFirstWorker, two, kNow);
  // Another machine of the same name.
  ledger.Heard(kSecondWorker, Report({1000, 1010}, "m2"), kNow);
  const wire::EnergyView view = ledger.View(20);
  EXPECT_EQ(view.devices_size(), 3);
  EXPECT_NEAR(view.total_joules(), 3000, 1e-6);
  EXPECT_NEAR(view.edp_joule_seconds(), 60000, 1e-3);
  EXPECT_NEAR(view.watts(), 300, 1e-9);
}

TEST(EnergyLedger, WhenTheReporterDiesAnotherOneGoesOn) {
  EnergyLedger ledger;
  ledger.Heard(kFirstWorker, Report({0, 5}), kNow);
  ledger.Heard(kSecondWorker, Report({4, 4.5}), kNow);  // counted already
  EXPECT_NEAR(ledger.total_joules(), 500, 1e-6);
  ledger.Heard(kSecondWorker, Report({4, 8}), kNow);
  EXPECT_NEAR(ledger.total_joules(), 800, 1e-6);
  // A worker that was started again begins at 0.
  ledger.Heard(kFirstWorker, Report({7, 9}), kNow);
  EXPECT_NEAR(ledger.total_joules(), 900, 1e-6);
}

TEST(EnergyLedger, PhasesAreThoseOfWhoReports) {
  EnergyLedger ledger;
  wire::NodeEnergy energy = Report({0, 1});
  ledger.Heard(kFirstWorker, energy, kNow);
  energy.set_until_us(4'000'000);
  energy.mutable_devices(0)->mutable_joules()->set_validation(150);
  energy.mutable_devices(0)->mutable_joules()->set_test(120);
  energy.mutable_devices(0)->mutable_joules()->set_other(30);
  ledger.Heard(kFirstWorker, energy, kNow);
  const wire::PhaseJoules joules = ledger.View(1).joules();
  EXPECT_NEAR(joules.training(), 100, 1e-9);
  EXPECT_NEAR(joules.validation(), 150, 1e-9);
  EXPECT_NEAR(joules.test(), 120, 1e-9);
  EXPECT_NEAR(joules.other(), 30, 1e-9);
}

TEST(EnergyLedger, NonsenseIsNotCounted) {
  EnergyLedger ledger;
  ledger.Heard(kFirstWorker, Report({5, 5}), kNow);
  ledger.Heard(kFirstWorker, Report({5, 3}), kNow);
  EXPECT_FALSE(ledger.metered());
  wire::NodeEnergy energy = Report({0, 1});
  energy.mutable_devices(0)->mutable_joules()->set_training(std::numeric_limits<double>::infinity());
  energy.mutable_devices(0)->mutable_joules()->set_test(std::nan(""));
  energy.mutable_devices(0)->mutable_joules()->set_other(-5);
  energy.mutable_devices(0)->set_watts(std::nan(""));
  ledger.Heard(kFirstWorker, energy, kNow);
  EXPECT_EQ(ledger.total_joules(), 0);
  EXPECT_EQ(ledger.View(1).watts(), 0);
  energy.set_since_us(std::numeric_limits<int64_t>::min());
  energy.set_until_us(std::numeric_limits<int64_t>::max());
  ledger.Heard(kFirstWorker, energy, kNow);
  EXPECT_TRUE(std::isfinite(ledger.total_joules()));
}

TEST(EnergyLedger, NoWorkerMakesItGrowWithoutBound) {
  EnergyLedger ledger;
  wire::NodeEnergy energy = Report({0, 1});
  for (size_t i = 0; i < EnergyLedger::kDevicesMax + 10; ++i) {
    wire::DeviceEnergy& device = *energy.add_devices();
    device.set_device("d" + std::to_string(i));
  }
  ledger.Heard(kFirstWorker, energy, kNow);
  EXPECT_EQ(ledger.Save().size(), static_cast<int>(EnergyLedger::kDevicesMax));
  EXPECT_EQ(ledger.View(1).devices_size(), 1000);
}

// A report with samples at these seconds, of 100 W and more: the time is their last digit.
wire::NodeEnergy Sampled(const Window& window, const std::vector<int>& seconds) {
  wire::NodeEnergy energy = Report(window);
  energy.set_sent_us(energy.until_us());
  for (const int second : seconds) {
    wire::PowerSample& sample = *energy.mutable_devices(0)->add_samples();
    sample.set_at_us(int64_t{1'000'000} * second);
    sample.set_watts(100 + second);
  }
  return energy;
}

std::vector<std::pair<double, double>> TimesAndWatts(const std::vector<PowerRow>& rows) {
  std::vector<std::pair<double, double>> found;
  for (const PowerRow& row : rows) {
    EXPECT_EQ(row.node, "n1");
    EXPECT_EQ(row.device, "package-0");
    found.emplace_back(row.time_s, row.watts);
  }
  return found;
}

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

TEST(EnergyLedger, EachSampleOfADeviceIsTakenOnceWhoeverSendsIt) {
  EnergyLedger ledger;
  // The scheduler's clock is 1000 s ahead; training began 4 s after the worker's clock did.
  ledger.Heard(kFirstWorker, Sampled({0, 3}, {2, 3}), At(1003));
  ledger.Heard(kFirstWorker, Sampled({0, 3}, {2, 3}), At(1003.5));  // its answer was lost
  ledger.Heard(kSecondWorker, Sampled({1, 5}, {3, 5}), At(1005));
  EXPECT_THAT(TimesAndWatts(ledger.TakeSamples(At(1004))), ElementsAre(Pair(-2, 102), Pair(-1, 103), Pair(1, 105)));
  EXPECT_THAT(ledger.TakeSamples(At(1004)), IsEmpty());
  // A message that took long does not move the samples.
  ledger.Heard(kFirstWorker, Sampled({0, 6}, {6}), At(1009));
  EXPECT_THAT(TimesAndWatts(ledger.TakeSamples(At(1004))), ElementsAre(Pair(2, 106)));
  const wire::DeviceCount device = ledger.View(1).devices(0);
  EXPECT_EQ(device.watts_min(), 102);
  EXPECT_EQ(device.watts_max(), 106);
  EXPECT_EQ(device.seconds(), 6);
  EXPECT_EQ(MeanWatts(device), 100);
}

TEST(EnergyLedger, EnergyAboveIdleIsThatOfTheLowestIdlePower) {
  EnergyLedger ledger;
  wire::NodeEnergy energy = Sampled({5, 10}, {1, 2, 6, 7});
  ledger.Heard(kFirstWorker, energy, At(10));
  EXPECT_FALSE(ledger.View(1).has_above_idle_joules());
  energy = Sampled({5, 15}, {});
  energy.mutable_devices(0)->set_idle_watts(40);
  ledger.Heard(kFirstWorker, energy, At(15));
  // A worker that was started again finds the node at work.
  energy.mutable_devices(0)->set_idle_watts(90);
  ledger.Heard(kSecondWorker, energy, At(15));
  EXPECT_NEAR(ledger.View(1).above_idle_joules(), 1000 - 40 * 10, 1e-6);
  EXPECT_EQ(ledger.View(1).devices(0).idle_watts(), 40);
  // Samples of the idle node are in the trace, and not among the extremes.
  EXPECT_EQ(ledger.TakeSamples(At(0)).size(), 4u);
  EXPECT_EQ(ledger.View(1).devices(0).watts_min(), 106);
}

TEST(EnergyLedger, SamplesThatNobodyTakesAreBounded) {
  EnergyLedger ledger;
  wire::NodeEnergy energy = Report({0, 1});
  for (int i = 1; i <= 1000; ++i) {
    wire::PowerSample& sample = *energy.mutable_devices(0)->add_samples();
    sample.set_at_us(i);
    sample.set_watts(i == 5 ? std::nan("") : 1);
  }
  for (size_t i = 0; i < EnergyLedger::kSamplesMax / 999 + 2; ++i) {
    energy.set_machine("m" + std::to_string(i));
    ledger.Heard(kFirstWorker, energy, kNow);
  }
  EXPECT_EQ(ledger.TakeSamples(kNow).size(), EnergyLedger::kSamplesMax);
}

TEST(EnergyLedger, SchedulerThatReturnsCountsNothingTwice) {
  Progress progress;
  wire::WorkerProgress words;
  *words.mutable_energy() = Sampled({0, 5}, {4, 5});
  progress.Heard({kFirstWorker, Incarnation(1)}, words, true, absl::UnixEpoch());
  state::Progress state;
  progress.Save(state);
  EXPECT_EQ(state.workers(0).last().energy().devices(0).samples_size(), 0);
  Progress again;
  again.Restore(state);
  EXPECT_NEAR(again.energy().total_joules(), 500, 1e-6);
  *words.mutable_energy() = Report({0, 7});
  again.Heard({kFirstWorker, Incarnation(1)}, words, true, absl::UnixEpoch());
  // One that it did not know.
  *words.mutable_energy() = Report({0, 8});
  again.Heard({kSecondWorker, Incarnation(2)}, words, true, absl::UnixEpoch());
  EXPECT_NEAR(again.energy().total_joules(), 800, 1e-6);
}

}  // namespace
}  // namespace slackline::scheduler::energy_ledger_test
