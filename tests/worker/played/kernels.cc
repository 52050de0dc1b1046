// The kernels of worker/cuda/codec_kernels.h on fake GPUs: their elements in plain loops.
#include <cstring>

#include "tests/worker/gpu_codec_host.h"
#include "tests/worker/played/clocks.h"
#include "worker/cuda/codec_kernels.h"

namespace slackline::worker::gpu {
namespace {

using played::Clocks;
using played::Range;

// The stream that a kernel is put on reads and writes these.
int Launch(const char* name, void* stream, std::vector<Range> reads, std::vector<Range> writes) {
  if (Clocks::Get().Fails(name)) return 999;
  std::erase_if(reads, [](const Range& range) { return range.begin == nullptr || range.bytes == 0; });
  std::erase_if(writes, [](const Range& range) { return range.begin == nullptr || range.bytes == 0; });
  Clocks::Get().Do(played::StreamOf(stream), {.what = name, .reads = std::move(reads), .writes = std::move(writes)});
  return 0;
}

Range InOf(const DeviceValues& values) { return {values.in, values.elements * sizeof(float)}; }
Range ResidualOf(const DeviceValues& values) { return {values.residual, values.elements * sizeof(float)}; }

size_t Int8Bytes(size_t elements) {
  return elements + (elements + kBlockElements - 1) / kBlockElements * (kBlockBytes - kBlockElements);
}

}  // namespace

int EncodeBf16(const DeviceValues& values, std::byte* out, void* stream) {
  host::EncodeHalves<Bf16>(values.elements, values.in, values.residual, out);
  return Launch("EncodeBf16", stream, {InOf(values)}, {{out, 2 * values.elements}, ResidualOf(values)});
}

int EncodeFp16(const DeviceValues& values, std::byte* out, void* stream) {
  host::EncodeHalves<Fp16>(values.elements, values.in, values.residual, out);
  return Launch("EncodeFp16", stream, {InOf(values)}, {{out, 2 * values.elements}, ResidualOf(values)});
}

int EncodeInt8(const DeviceValues& values, std::byte* out, void* stream) {
  host::EncodeInt8Blocks(values.elements, values.in, values.residual, out);
  return Launch("EncodeInt8", stream, {InOf(values)}, {{out, Int8Bytes(values.elements)}, ResidualOf(values)});
}

size_t TopKScratchBytes(size_t elements) { return 4096 + elements / 64; }

int EncodeTopK(uint64_t pairs, const DeviceValues& values, void* scratch, std::byte* out, uint64_t* written,
               void* stream) {
  const uint64_t sent = host::EncodeTopK(pairs, values.elements, values.in, values.residual, out) / 8;
  std::memcpy(written, &sent, sizeof(sent));
  return Launch(
      "EncodeTopK", stream, {InOf(values)},
      {{out, 8 * pairs}, {written, sizeof(sent)}, {scratch, TopKScratchBytes(values.elements)}, ResidualOf(values)});
}

int ReturnBf16(const DeviceBytes& in, float* residual, void* stream) {
  host::ReturnHalves<Bf16>(in.elements, in.bytes, residual);
  return Launch("ReturnBf16", stream, {{in.bytes, 2 * in.elements}}, {{residual, in.elements * sizeof(float)}});
}

int ReturnFp16(const DeviceBytes& in, float* residual, void* stream) {
  host::ReturnHalves<Fp16>(in.elements, in.bytes, residual);
  return Launch("ReturnFp16", stream, {{in.bytes, 2 * in.elements}}, {{residual, in.elements * sizeof(float)}});
}

int ReturnInt8(const DeviceBytes& in, float* residual, void* stream) {
  host::ReturnInt8Blocks(in.elements, in.bytes, residual);
  return Launch("ReturnInt8", stream, {{in.bytes, Int8Bytes(in.elements)}}, {{residual, in.elements * sizeof(float)}});
}

int ReturnTopK(const DeviceBytes& in, float* residual, void* stream) {
  host::ReturnTopK(in.elements, in.bytes, residual);
  return Launch("ReturnTopK", stream, {{in.bytes, 8 * in.elements}}, {{residual, sizeof(float)}});
}

int SumSquares(const float* in, size_t elements, double* parts, void* stream) {
  for (unsigned part = 0; part < kSquareSums; ++part) {
    double sum = 0;
    for (size_t i = part; i < elements; i += kSquareSums) sum += static_cast<double>(in[i]) * in[i];
    parts[part] = sum;
  }
  return Launch("SumSquares", stream, {{in, elements * sizeof(float)}}, {{parts, kSquareSums * sizeof(double)}});
}

}  // namespace slackline::worker::gpu
