// Tests for a machine with a GPU: the kernels give the oracle's bits, and a group on GPUs gives the gradients of one on
// CPUs. Exits with 77 if there is no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "common/codec/encode.h"
#include "common/codec/topk.h"
#include "tests/hard_floats.h"
#include "tests/worker/model_fixture.h"
#include "worker/base/gradient_norm.h"
#include "worker/cuda/codec_kernels.h"
#include "worker/cuda/gpus.h"
#include "worker/cuda/runtime.h"

namespace slackline::worker::gpu::gpu_device_test {
namespace {

// --- kernels ---------------------------------------------------------------------------------------------------------

// Memory of the current device.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : size_(values.size()) {
    EXPECT_EQ(cudaMalloc(&memory_, bytes() + 8), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(memory_, values.data(), bytes(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~OnDevice() { cudaFree(memory_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  T* get() const { return static_cast<T*>(memory_); }
  std::vector<T> Read() const {
    std::vector<T> values(size_);
    EXPECT_EQ(cudaMemcpy(values.data(), memory_, bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  size_t bytes() const { return size_ * sizeof(T); }

  const size_t size_;
  void* memory_ = nullptr;
};

int EncodeOnDevice(const codec::Codec& codec, const DeviceValues& values, std::byte* out, uint64_t* written) {
  switch (codec.encoding) {
    case codec::Encoding::kBf16:
      return EncodeBf16(values, out, nullptr);
    case codec::Encoding::kFp16:
      return EncodeFp16(values, out, nullptr);
    case codec::Encoding::kInt8:
      return EncodeInt8(values, out, nullptr);
    default: {
      const OnDevice<std::byte> scratch(std::vector<std::byte>(TopKScratchBytes(values.elements)));
      const int said =
          EncodeTopK(codec::TopKPairsMax(codec, values.elements), values, scratch.get(), out, written, nullptr);
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      return said;
    }
  }
}

void ExpectTheOraclesBits(const codec::Codec& codec, const std::vector<float>& in, const std::vector<float>& before) {
  for (bool feedback : {false, true}) {
    std::vector<std::byte> want(codec::EncodedBytesMax(codec, in.size()));
    std::vector<float> want_residual = before;
    want.resize(feedback ? codec::EncodeWithFeedback(codec, in, absl::MakeSpan(want_residual), absl::MakeSpan(want))
                         : codec::Encode(codec, in, absl::MakeSpan(want)));
    const OnDevice<float> values(in), residual(before);
    const OnDevice<std::byte> out(std::vector<std::byte>(codec::EncodedBytesMax(codec, in.size())));
    const OnDevice<uint64_t> written(std::vector<uint64_t>(1));
    ASSERT_EQ(
        EncodeOnDevice(codec, {in.size(), values.get(), feedback ? residual.get() : nullptr}, out.get(), written.get()),
        0);
    std::vector<std::byte> got = out.Read();
    if (codec.encoding == codec::Encoding::kTopK) got.resize(written.Read()[0] * sizeof(codec::IndexedValue));
    ASSERT_EQ(got, want) << "feedback " << feedback;
    if (feedback) {
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(residual.Read(), want_residual));
    }
  }
}

TEST(GpuKernels, GiveTheOraclesBits) {
  const std::vector<codec::Codec> codecs = {{.encoding = codec::Encoding::kBf16, .fraction = 0},
                                            {.encoding = codec::Encoding::kFp16, .fraction = 0},
                                            {.encoding = codec::Encoding::kInt8, .fraction = 0},
                                            {.encoding = codec::Encoding::kTopK, .fraction = 0.01},
                                            {.encoding = codec::Encoding::kTopK, .fraction = 1}};
  for (const codec::Codec& codec : codecs) {
    for (size_t size : {1, 3, 255, 257, 1023, 1024, 1025, 70001, 1500007}) {
      SCOPED_TRACE(testing::Message() << codec::ToString(codec) << " of " << size);
      const auto seed = static_cast<uint32_t>(size);
      // Which NaN a NaN is, is not promised: values without any.
      ASSERT_NO_FATAL_FAILURE(
          ExpectTheOraclesBits(codec, HardFloats(size, seed, Hard::kFinite), std::vector<float>(size, 0.25f)));
    }
  }
}

// --- groups ----------------------------------------------------------------------------------------------------------

std::vector<Device> Gpus(size_t count) {
  std::vector<Device> devices;
  for (uint32_t i = 0; i < count; ++i) devices.push_back({.kind = Device::Kind::kCuda, .index = i});
  return devices;
}

void ExpectTheGradientsOfACpu(const ModelSpec& spec, const std::vector<Device>& gpus, size_t samples,
                              const GroupOptions& options = {}) {
  const auto cpu = MakeModel(spec);
  const auto group = MakeGroup(spec, 1, gpus, options);
  ASSERT_TRUE(group.ok()) << group.status();
  const images::Batch batch = TinyBatch(spec, samples);
  const std::unique_ptr<images::Batch> pinned = images::NewBatch((*group)->batch_memory());
  pinned->labels = batch.labels;
  images::RemakeFloats(pinned->images, batch.images.size());
  for (int round = 0; round < 3; ++round) {
    std::copy(batch.images.begin(), batch.images.end(), pinned->images.begin());
    uint64_t ready = (*group)->model().elements();
    const auto got = (*group)->Step(View(*pinned), [&](uint64_t from) {
      EXPECT_LE(from, ready);
      ready = from;
    });
    // As who makes the next batch: nothing reads this one any more.
    std::fill(pinned->images.begin(), pinned->images.end(), std::nanf(""));
    const auto want = cpu->Step(View(batch));
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(ready, 0u);
    EXPECT_EQ(got->samples, want->samples);
    EXPECT_NEAR(got->loss, want->loss, 1e-4);
    if (options.stages == 1) {
      const double norm = L2Norm(cpu->push().first(cpu->trained_elements()));
      EXPECT_NEAR(got->gradient_norm.value(), norm, 1e-3 * std::max(1.0, norm));
    }
    for (size_t i = 0; i < cpu->elements(); ++i) {
      const float want_push = cpu->push()[i];
      ASSERT_NEAR((*group)->model().push()[i], want_push, 1e-3 * std::max(1.0f, std::abs(want_push)))
          << "element " << i;
      cpu->parameters()[i] -= 0.5f * cpu->push()[i];
      (*group)->model().parameters()[i] = cpu->parameters()[i];
    }
  }
}

TEST(GpuGroup, OneGpuHasTheGradientsOfACpu) {
  ExpectTheGradientsOfACpu(TinyMlp(), Gpus(1), 8);
  ExpectTheGradientsOfACpu(TinyCnn(false), Gpus(1), 8);
  ExpectTheGradientsOfACpu(TinyImagesForResnet(), Gpus(1), 8);
}

TEST(GpuGroup, SeveralHaveTheGradientsOfACpu) {
  const size_t here = FindGpus().names.size();
  if (here < 2) GTEST_SKIP() << "one GPU here; needed are two";
  for (size_t samples : {8, 7, 1}) ExpectTheGradientsOfACpu(TinyCnn(false), Gpus(here), samples);
}

// On one GPU alone, too, where a stage's streams wait for the other's all the same.
TEST(GpuGroup, StagesHaveTheGradientsOfACpu) {
  std::vector<Device> gpus = Gpus(FindGpus().names.size());
  if (gpus.size() == 1) gpus.push_back(gpus.front());
  gpus.resize(2);
  for (const size_t micro_batches : {1, 4}) {
    GroupOptions options;
    options.stages = 2;
    options.micro_batches = micro_batches;
    for (const ModelSpec& spec : {TinyMlp(), TinyCnn(false)}) ExpectTheGradientsOfACpu(spec, gpus, 11, options);
  }
}

// What the group encodes is the code of the very sum that another group brings to the host as floats.
TEST(GpuGroup, LeavesItsSumEncoded) {
  const ModelSpec spec = TinyMlp();
  for (const char* codec : {"bf16", "fp16", "int8", "topk:0.25"}) {
    SCOPED_TRACE(codec);
    const auto plain = MakeGroup(spec, 1, Gpus(1), {}), encoding = MakeGroup(spec, 1, Gpus(1), {});
    ASSERT_TRUE(plain.ok() && encoding.ok());
    const uint64_t elements = (*plain)->model().trained_elements();
    // Some in front, and some behind, stay floats.
    const PlannedChunk chunk = {5, elements - 12, codec::ParseCodec(codec).value(), true};
    ASSERT_EQ((*encoding)->encoder()->Plan({chunk}), absl::OkStatus());
    std::vector<float> residual(chunk.elements);
    for (int round = 0; round < 3; ++round) {
      const images::Batch batch = TinyBatch(spec, 8);
      const auto want = (*plain)->Step(View(batch)), got = (*encoding)->Step(View(batch));
      ASSERT_TRUE(want.ok() && got.ok());
      const absl::Span<const float> push = (*plain)->model().push();
      double squares = 0;
      for (uint64_t i = 0; i < elements; ++i) squares += static_cast<double>(push[i]) * push[i];
      EXPECT_NEAR(got->gradient_norm.value(), std::sqrt(squares), 1e-6);
      std::vector<std::byte> bytes(codec::EncodedBytesMax(chunk.codec, chunk.elements));
      bytes.resize(codec::EncodeWithFeedback(chunk.codec, push.subspan(chunk.begin, chunk.elements),
                                             absl::MakeSpan(residual), absl::MakeSpan(bytes)));
      const float* const memory = (*encoding)->model().push().data();
      const EncodedBytes taken = (*encoding)->encoder()->Take(memory, 0);
      EXPECT_EQ(std::vector<std::byte>(taken.bytes.get(), taken.bytes.get() + taken.size), bytes);
      for (uint64_t i : {uint64_t{0}, uint64_t{4}, chunk.end(), elements - 1}) EXPECT_EQ(memory[i], push[i]);
      if (round != 1) continue;
      codec::ReturnToResidual(chunk.codec, bytes, absl::MakeSpan(residual));
      (*encoding)->encoder()->Return(0, taken);
    }
  }
}

TEST(GpuGroup, BatchesAreInPinnedMemory) {
  const auto group = MakeGroup(TinyMlp(), 1, Gpus(FindGpus().names.size()), {});
  ASSERT_TRUE(group.ok()) << group.status();
  const std::unique_ptr<images::Batch> batch = images::NewBatch((*group)->batch_memory());
  // From a thread that has no device.
  std::thread([&] { images::RemakeFloats(batch->images, 1'000'003); }).join();
  cudaPointerAttributes seen = {};
  ASSERT_EQ(cudaPointerGetAttributes(&seen, batch->images.data()), cudaSuccess);
  EXPECT_EQ(seen.type, cudaMemoryTypeHost);
}

TEST(GpuGroup, AWrongLabelEndsTheStepAndNotTheGroup) {
  const auto group = MakeGroup(TinyMlp(), 1, Gpus(FindGpus().names.size()), {});
  ASSERT_TRUE(group.ok()) << group.status();
  images::Batch batch = TinyBatch(TinyMlp(), 8);
  batch.labels[7] = 77;
  EXPECT_EQ((*group)->Step(View(batch)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE((*group)->Step(View(TinyBatch(TinyMlp(), 8))).ok());
}

}  // namespace
}  // namespace slackline::worker::gpu::gpu_device_test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // Libraries would round factors to TF32, which has 10 bits. Through the batch norms of a resnet50 that changes its
  // first gradient by 70 %.
  setenv("NVIDIA_TF32_OVERRIDE", "0", /*replace=*/1);
  const slackline::worker::GpusHere here = slackline::worker::gpu::FindGpus();
  // Before a model on a CPU takes a step, for which LibTorch may ask for GPUs.
  const absl::Status loaded = slackline::worker::LoadLibTorchForGpus();
  if (here.names.empty()) {
    // Without a GPU LibTorch's half for GPUs loads all the same, and says so.
    std::printf("SKIP: no GPU: %s; %s\n", here.why_none.c_str(), std::string(loaded.message()).c_str());
    return 77;
  }
  if (!loaded.ok()) {
    std::printf("there is a GPU, but %s\n", std::string(loaded.message()).c_str());
    return 1;
  }
  return RUN_ALL_TESTS();
}
