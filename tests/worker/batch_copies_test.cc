// Copies to a device beside which the host continues. The device is a fake, LibTorch's PrivateUse1: it reads the host's
// memory as late as it may, when somebody waits for it.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "worker/model/torch/batch_copies.h"

namespace slackline::worker::batch_copies_test {
namespace {

using testing::ElementsAre;

const at::Device kDevice(at::kPrivateUse1, 0);

// What the device has been given and has not done.
struct Queue {
  std::deque<std::function<void()>> work;
  uint64_t given = 0, done = 0;
  bool broken = false;
};
Queue& TheQueue() {
  static auto* const queue = new Queue();
  return *queue;
}

void DoUpTo(uint64_t end) {
  Queue& queue = TheQueue();
  TORCH_CHECK(!queue.broken, "an illegal memory access was encountered");
  for (; queue.done < end; ++queue.done) {
    queue.work.front()();
    queue.work.pop_front();
  }
}

struct LateStream final : public c10::impl::NoOpDeviceGuardImpl<at::kPrivateUse1> {
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, device, 0);
  }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new uint64_t();
    *static_cast<uint64_t*>(*event) = TheQueue().given;
  }
  void synchronizeEvent(void* event) const override { DoUpTo(*static_cast<uint64_t*>(event)); }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<uint64_t*>(event);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, LateStream)

// The device's memory is the host's.
struct LateMemory final : public c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    auto* const memory = new char[bytes];
    return {memory, memory, &Free, kDevice};
  }
  static void Free(void* memory) { delete[] static_cast<char*>(memory); }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

at::Tensor EmptyStrided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                        std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  static auto* const memory = new LateMemory();
  return at::Tensor(at::detail::empty_strided_generic(
      size, stride, memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type.value_or(at::kFloat)));
}

// As CUDA copies from pinned memory.
at::Tensor& CopyTo(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  TORCH_CHECK(from.is_cpu() && to.strides() == from.strides() && to.scalar_type() == from.scalar_type());
  Queue& queue = TheQueue();
  ++queue.given;
  // It keeps its own memory as long as it needs it, and not the host's.
  queue.work.emplace_back(
      [to, from = from.const_data_ptr(), bytes = from.nbytes()] { std::memcpy(to.mutable_data_ptr(), from, bytes); });
  if (!non_blocking) DoUpTo(queue.given);
  return to;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty_strided", &EmptyStrided);
  library.impl("copy_", &CopyTo);
}

std::vector<float> OnDevice(const at::Tensor& tensor) {
  const auto* values = static_cast<const float*>(tensor.const_data_ptr());
  return {values, values + tensor.numel()};
}

class BatchCopiesTest : public testing::Test {
 protected:
  BatchCopiesTest() { TheQueue() = {}; }

  at::Tensor Images() { return at::from_blob(pixels_.data(), {2, 1, 1, 2}, {2, 1, 2, 1}, at::kFloat); }

  std::vector<float> pixels_ = {1, 2, 3, 4};
  BatchCopies copies_{kDevice};
};

TEST_F(BatchCopiesTest, TheHostGoesOnUntilTheBatchIsToBeWritten) {
  at::Tensor images;
  {
    const BatchCopies::Scope read(copies_);
    images = copies_.ToDevice(Images());
    EXPECT_EQ(images.device(), kDevice);
    EXPECT_EQ(images.strides(), Images().strides());
    EXPECT_EQ(TheQueue().given - TheQueue().done, 1u) << "the host has waited";
  }
  EXPECT_EQ(TheQueue().done, 1u);
  pixels_ = {5, 6, 7, 8};  // another batch
  EXPECT_THAT(OnDevice(images), ElementsAre(1, 2, 3, 4));
}

// So the others would fail without the wait.
TEST_F(BatchCopiesTest, ThePlayedDeviceReadsLate) {
  const BatchCopies::Scope read(copies_);
  const at::Tensor images = copies_.ToDevice(Images());
  pixels_ = {5, 6, 7, 8};
  DoUpTo(1);
  EXPECT_THAT(OnDevice(images), ElementsAre(5, 6, 7, 8));
}

TEST_F(BatchCopiesTest, OneWaitIsForAllOfABatch) {
  std::vector<int64_t> labels = {7, 8};
  for (int step = 0; step < 3; ++step) {
    at::Tensor targets;
    {
      const BatchCopies::Scope read(copies_);
      copies_.ToDevice(Images());
      targets = copies_.ToDevice(at::from_blob(labels.data(), {2}, at::kLong));
      EXPECT_EQ(TheQueue().given - TheQueue().done, 2u);
    }
    EXPECT_EQ(TheQueue().given, TheQueue().done);
    EXPECT_EQ(static_cast<const int64_t*>(targets.const_data_ptr())[1], 8);
    const BatchCopies::Scope nothing(copies_);
  }
}

TEST_F(BatchCopiesTest, TensorsThatNobodyElseHoldsStayUntilTheyAreRead) {
  at::Tensor shares = at::full({3}, 0.5f), targets;
  const c10::weak_intrusive_ptr<c10::TensorImpl> watched(shares.getIntrusivePtr());
  {
    const BatchCopies::Scope read(copies_);
    targets = copies_.ToDevice(std::exchange(shares, at::Tensor()));
    EXPECT_FALSE(watched.expired());
  }
  EXPECT_TRUE(watched.expired());
  EXPECT_THAT(OnDevice(targets), ElementsAre(0.5f, 0.5f, 0.5f));
}

TEST_F(BatchCopiesTest, AStepThatFailsWaitsToo) {
  at::Tensor images;
  const auto step = [&] {
    const BatchCopies::Scope read(copies_);
    images = copies_.ToDevice(Images());
    throw std::runtime_error("out of memory");
  };
  EXPECT_THROW(step(), std::runtime_error);
  EXPECT_EQ(TheQueue().given, TheQueue().done);
  pixels_ = {5, 6, 7, 8};
  EXPECT_THAT(OnDevice(images), ElementsAre(1, 2, 3, 4));
}

TEST_F(BatchCopiesTest, ADeviceThatIsBrokenIsNotWaitedFor) {
  {
    const BatchCopies::Scope read(copies_);
    copies_.ToDevice(Images());
    TheQueue().broken = true;
  }
  TheQueue() = {};
  {
    const BatchCopies::Scope read(copies_);
    copies_.ToDevice(Images());
  }
  EXPECT_EQ(TheQueue().done, 1u);
}

TEST(BatchCopies, OnACpuThereAreNone) {
  BatchCopies copies(at::kCPU);
  const at::Tensor images = at::full({3}, 1.0f);
  const BatchCopies::Scope read(copies);
  EXPECT_TRUE(copies.ToDevice(images).is_same(images));
}

}  // namespace
}  // namespace slackline::worker::batch_copies_test
