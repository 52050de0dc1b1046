// Runs a test on every instruction set that the kernels were compiled for and that this CPU has.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>

namespace slackline {

// Kernels are taken from one instruction set while it lives.
class ChosenTarget {
 public:
  explicit ChosenTarget(int64_t target) { Choose(target); }
  ~ChosenTarget() { Choose(0); }
  ChosenTarget(const ChosenTarget&) = delete;
  ChosenTarget& operator=(const ChosenTarget&) = delete;

 private:
  // 0: the best of the CPU.
  static void Choose(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

// `kernel_target` tells which one the kernels took: a test that runs on another proves nothing.
template <typename Test>
void OnEachTarget(const char* (*kernel_target)(), const Test& test) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const ChosenTarget chosen(target);
    ASSERT_STREQ(kernel_target(), hwy::TargetName(target));
    test();
  }
}

}  // namespace slackline
