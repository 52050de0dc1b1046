// Parameters that pass the gate to a device's thread piece by piece.
#include "worker/group/arrival_gate.h"

#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "absl/synchronization/notification.h"

namespace slackline::worker::arrival_gate_test {
namespace {

// Remembers what it was asked for; `fails` at the end of a piece.
class ScriptedArrival final : public Arrival {
 public:
  absl::Status AwaitUpTo(uint64_t end) override {
    asked.push_back(end);
    if (before) before(end);
    return end == fails ? absl::FailedPreconditionError("fenced") : absl::OkStatus();
  }
  absl::Status AwaitAll() override {
    all = true;
    return absl::OkStatus();
  }

  std::vector<uint64_t> asked;
  bool all = false;
  uint64_t fails = 0;
  std::function<void(uint64_t end)> before;
};

constexpr ArrivalGate::Pieces kPieces = {.elements = 25, .each = 10};

TEST(ArrivalGate, APieceMayBeUsedWhileTheNextOneIsAwaited) {
  ArrivalGate gate;
  gate.Close();
  ScriptedArrival arrival;
  absl::Notification has_first, prepared;
  arrival.before = [&](uint64_t end) {
    if (end == 20) has_first.WaitForNotification();
  };
  std::thread device([&] {
    gate.Await(10);
    has_first.Notify();
    gate.Await(25);
    EXPECT_TRUE(prepared.HasBeenNotified()) << "the last piece passes behind all else";
  });
  EXPECT_EQ(gate.Pass(arrival, kPieces,
                      [&] {
                        EXPECT_TRUE(arrival.all);
                        prepared.Notify();
                        return absl::OkStatus();
                      }),
            absl::OkStatus());
  device.join();
  EXPECT_THAT(arrival.asked, testing::ElementsAre(10, 20));
}

TEST(ArrivalGate, WhatDoesNotComeLetsEverybodyGo) {
  ArrivalGate gate;
  gate.Close();
  ScriptedArrival arrival;
  arrival.fails = 20;
  std::thread device([&] { gate.Await(25); });
  bool prepared = false;
  const absl::Status status = gate.Pass(arrival, kPieces, [&] {
    prepared = true;
    return absl::OkStatus();
  });
  device.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(prepared);
  EXPECT_FALSE(arrival.all);
}

TEST(ArrivalGate, IsOpenWhereNobodyHasClosedIt) {
  ArrivalGate gate;
  gate.Await(UINT64_MAX);
}

}  // namespace
}  // namespace slackline::worker::arrival_gate_test
