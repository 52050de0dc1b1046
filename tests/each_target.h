// Runs a test on every instruction set that the kernels were compiled for and that this CPU has.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>

namespace slackline {

// Makes the kernels run on one instruction set for as long as this object lives.
class ChosenTarget {
 public:
  explicit ChosenTarget(int64_t target) { Choose(target); }
  ~ChosenTarget() { Choose(0); }
  ChosenTarget(const ChosenTarget&) = delete;
  ChosenTarget& operator=(const ChosenTarget&) = delete;

 private:
  // Chooses `target`, or the CPU's best instruction set if it is 0.
  static void Choose(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

// Runs `test` on each instruction set. `kernel_target` names the set that the kernels chose; another one than wanted
// fails the test, which would otherwise prove nothing.
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
