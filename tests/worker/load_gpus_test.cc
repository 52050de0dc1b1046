// LibTorch keeps its first answer about GPUs, so that nothing may ask before its half for GPUs is loaded. Here the half
// is played: what it registers when it is loaded.
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <gtest/gtest.h>

#include "tests/worker/model_fixture.h"

namespace slackline::worker::load_gpus_test {
namespace {

struct Hooks final : public at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  bool hasCUDA() const override { return true; }
};

TEST(LoadGpus, LookingForTheHalfAndMakingAModelLeavesTheAnswerOpen) {
  LibTorchForGpus();
  MakeModel(TinyMlp());
  at::CUDAHooksRegistry()->Register("CUDAHooks",
                                    [](at::CUDAHooksArgs arguments) -> std::unique_ptr<at::CUDAHooksInterface> {
                                      return std::make_unique<Hooks>(arguments);
                                    });
  EXPECT_FALSE(LibTorchForGpus().empty());
  EXPECT_EQ(LoadLibTorchForGpus(), absl::OkStatus());
}

}  // namespace
}  // namespace slackline::worker::load_gpus_test
