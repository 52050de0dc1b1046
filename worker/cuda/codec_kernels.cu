#include "worker/cuda/codec_kernels.h"

// HIP has its words for devices from here.
#include "worker/cuda/runtime.h"

#include "worker/cuda/codec_element.h"

namespace slackline::worker::gpu {
namespace {

using Count = unsigned long long;  // as atomicAdd() takes it

constexpr unsigned kThreads = 256;
// Each thread of a tile has so many values that lie one behind the other; a tile is as large as a block of int8.
constexpr unsigned kRun = kBlockElements / kThreads;
// Enough to fill any GPU of today; each goes on to further tiles.
constexpr unsigned kHistogramBlocks = 1024;
constexpr unsigned kScanThreads = 1024;
static_assert(kThreads == kDigits && kBlockElements < 1 << 16);

__device__ float ValueAt(const DeviceValues& values, size_t i) {
  return values.residual == nullptr ? values.in[i] : values.in[i] + values.residual[i];
}

unsigned Tiles(size_t elements) { return static_cast<unsigned>((elements + kBlockElements - 1) / kBlockElements); }

int Launched() { return static_cast<int>(cudaGetLastError()); }

template <typename Half>
__global__ void EncodeHalvesKernel(DeviceValues values, uint16_t* out) {
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= values.elements) return;
  float left = 0;
  out[i] = EncodeHalf<Half>(ValueAt(values, i), &left);
  if (values.residual != nullptr) values.residual[i] = left;
}

template <typename Half>
int EncodeHalves(const DeviceValues& values, std::byte* out, void* stream) {
  if (values.elements == 0) return 0;
  const auto blocks = static_cast<unsigned>((values.elements + kThreads - 1) / kThreads);
  EncodeHalvesKernel<Half>
      <<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(values, reinterpret_cast<uint16_t*>(out));
  return Launched();
}

// One block of threads has one block of the code.
__global__ void EncodeInt8Kernel(DeviceValues values, unsigned char* out) {
  __shared__ unsigned largest;
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  const size_t begin = size_t{blockIdx.x} * kBlockElements;
  const size_t left_over = values.elements - begin;
  const unsigned elements = left_over < kBlockElements ? static_cast<unsigned>(left_over) : kBlockElements;
  float x[kRun] = {};
  unsigned own = 0;
  for (unsigned k = 0; k < kRun; ++k) {
    const unsigned i = k * kThreads + threadIdx.x;
    if (i < elements) x[k] = ValueAt(values, begin + i);
    own = MagnitudeOf(x[k]) > own ? MagnitudeOf(x[k]) : own;
  }
  atomicMax(&largest, own);
  __syncthreads();
  const BlockScale by = ScaleOf(largest);
  unsigned char* const code = out + size_t{blockIdx.x} * kBlockBytes;
  if (threadIdx.x == 0) *reinterpret_cast<float*>(code) = by.scale;
  for (unsigned k = 0; k < kRun; ++k) {
    const unsigned i = k * kThreads + threadIdx.x;
    if (i >= elements) continue;
    float left = 0;
    code[sizeof(float) + i] = static_cast<unsigned char>(EncodeInt8(x[k], by, &left));
    if (values.residual != nullptr) values.residual[begin + i] = left;
  }
}

// --- top-k -----------------------------------------------------------------------------------------------------------

// In front of the scratch memory; two numbers a tile follow.
struct TopKState {
  Selection at;
  Count histogram[kDigits];
};

struct TopKScratch {
  TopKState* state;
  Count* greater;  // by tile: values larger than the last one that is sent; then, how many in the tiles before
  Count* equal;    // and as large
};

TopKScratch Layout(void* scratch, size_t elements) {
  auto* state = static_cast<TopKState*>(scratch);
  auto* greater = reinterpret_cast<Count*>(state + 1);
  return {state, greater, greater + Tiles(elements)};
}

__global__ void AddKernel(DeviceValues values) {
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < values.elements) values.residual[i] = values.in[i] + values.residual[i];
}

__global__ void StartKernel(uint64_t pairs, TopKState* state) {
  if (threadIdx.x == 0) {
    state->at = Selection{};
    state->at.left = pairs;
  }
  state->histogram[threadIdx.x] = 0;
}

__global__ void HistogramKernel(const float* values, size_t elements, TopKState* state) {
  __shared__ unsigned own[kDigits];
  own[threadIdx.x] = 0;
  __syncthreads();
  const Selection at = state->at;
  for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < elements; i += size_t{gridDim.x} * kThreads) {
    const uint32_t magnitude = MagnitudeOf(values[i]);
    if (HasPrefix(magnitude, at)) atomicAdd(&own[DigitOf(magnitude, at)], 1u);
  }
  __syncthreads();
  if (own[threadIdx.x] != 0) atomicAdd(&state->histogram[threadIdx.x], Count{own[threadIdx.x]});
}

__global__ void NarrowKernel(TopKState* state) {
  if (threadIdx.x == 0) {
    uint64_t histogram[kDigits];
    for (unsigned i = 0; i < kDigits; ++i) histogram[i] = state->histogram[i];
    Narrow(histogram, &state->at);
  }
  __syncthreads();
  state->histogram[threadIdx.x] = 0;
}

// What a thread has found in its run of a tile: at most 1024 a tile, so that both fit into one sum.
struct Found {
  unsigned packed = 0;
  __device__ unsigned greater() const { return packed & 0xffff; }
  __device__ unsigned equal() const { return packed >> 16; }
};

__device__ Found FindInRun(const float* values, size_t elements, const Selection& at) {
  Found found;
  const size_t begin = size_t{blockIdx.x} * kBlockElements + threadIdx.x * kRun;
  for (size_t i = begin; i < begin + kRun && i < elements; ++i) {
    const uint32_t magnitude = MagnitudeOf(values[i]);
    if (magnitude > at.prefix) found.packed += 1;
    if (magnitude == at.prefix) found.packed += 1u << 16;
  }
  return found;
}

// Of the threads before this one, and of all.
struct Before {
  Found before;
  Found all;
};

__device__ Before ScanTile(const Found& own) {
  __shared__ unsigned sums[kThreads];
  sums[threadIdx.x] = own.packed;
  __syncthreads();
  for (unsigned reach = 1; reach < kThreads; reach *= 2) {
    const unsigned more = threadIdx.x >= reach ? sums[threadIdx.x - reach] : 0;
    __syncthreads();
    sums[threadIdx.x] += more;
    __syncthreads();
  }
  return {{sums[threadIdx.x] - own.packed}, {sums[kThreads - 1]}};
}

__global__ void CountKernel(const float* values, size_t elements, TopKScratch scratch) {
  const Before found = ScanTile(FindInRun(values, elements, scratch.state->at));
  if (threadIdx.x != 0) return;
  scratch.greater[blockIdx.x] = found.all.greater();
  scratch.equal[blockIdx.x] = found.all.equal();
}

// By one block: numbers a tile become sums over the tiles before. Returns the sum over all, to every thread.
__device__ Count ScanTiles(Count* numbers, unsigned tiles) {
  __shared__ Count sums[kScanThreads];
  const unsigned share = (tiles + kScanThreads - 1) / kScanThreads;
  const unsigned begin = threadIdx.x * share < tiles ? threadIdx.x * share : tiles;
  const unsigned end = begin + share < tiles ? begin + share : tiles;
  Count own = 0;
  for (unsigned i = begin; i < end; ++i) own += numbers[i];
  sums[threadIdx.x] = own;
  __syncthreads();
  for (unsigned reach = 1; reach < kScanThreads; reach *= 2) {
    const Count more = threadIdx.x >= reach ? sums[threadIdx.x - reach] : 0;
    __syncthreads();
    sums[threadIdx.x] += more;
    __syncthreads();
  }
  Count before = sums[threadIdx.x] - own;
  const Count all = sums[kScanThreads - 1];
  for (unsigned i = begin; i < end; ++i) {
    const Count number = numbers[i];
    numbers[i] = before;
    before += number;
  }
  // Before somebody scans again.
  __syncthreads();
  return all;
}

__device__ void WritePair(unsigned char* out, Count place, uint32_t index, float value) {
  reinterpret_cast<uint2*>(out)[place] = make_uint2(index, BitsOf(value));
}

// Equals of zero are not sent.
__device__ Count SentOfEquals(Count equals, const Selection& at) {
  if (at.prefix == 0) return 0;
  return equals < at.left ? equals : at.left;
}

__global__ void ScanKernel(DeviceValues values, unsigned tiles, TopKScratch scratch, unsigned char* out,
                           uint64_t* written) {
  const Selection at = scratch.state->at;
  const Count greater = ScanTiles(scratch.greater, tiles), equal = ScanTiles(scratch.equal, tiles);
  if (threadIdx.x != 0) return;
  *written = greater + SentOfEquals(equal, at);
  if (*written != 0) return;
  // There is nothing but zeros: one of them is sent.
  const float* chosen = values.residual == nullptr ? values.in : values.residual;
  WritePair(out, 0, 0, chosen[0]);
  if (values.residual != nullptr) values.residual[0] = 0;
  *written = 1;
}

__global__ void WriteKernel(DeviceValues values, TopKScratch scratch, unsigned char* out) {
  const float* chosen = values.residual == nullptr ? values.in : values.residual;
  const Selection at = scratch.state->at;
  const Before found = ScanTile(FindInRun(chosen, values.elements, at));
  Count greater = scratch.greater[blockIdx.x] + found.before.greater();
  Count equal = scratch.equal[blockIdx.x] + found.before.equal();
  const size_t begin = size_t{blockIdx.x} * kBlockElements + threadIdx.x * kRun;
  for (size_t i = begin; i < begin + kRun && i < values.elements; ++i) {
    const float value = chosen[i];
    const uint32_t magnitude = MagnitudeOf(value);
    if (IsSent(magnitude, equal, at)) {
      WritePair(out, greater + SentOfEquals(equal, at), static_cast<uint32_t>(i), value);
      if (values.residual != nullptr) values.residual[i] = 0;
    }
    if (magnitude > at.prefix) ++greater;
    if (magnitude == at.prefix) ++equal;
  }
}

// --- what comes back -------------------------------------------------------------------------------------------------

template <typename Half>
__global__ void ReturnHalvesKernel(size_t elements, const uint16_t* in, float* residual) {
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < elements) residual[i] += Half::Value(in[i]);
}

template <typename Half>
int ReturnHalves(const DeviceBytes& in, float* residual, void* stream) {
  if (in.elements == 0) return 0;
  const auto blocks = static_cast<unsigned>((in.elements + kThreads - 1) / kThreads);
  ReturnHalvesKernel<Half><<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      in.elements, reinterpret_cast<const uint16_t*>(in.bytes), residual);
  return Launched();
}

__global__ void ReturnInt8Kernel(size_t elements, const unsigned char* in, float* residual) {
  const unsigned char* const code = in + size_t{blockIdx.x} * kBlockBytes;
  const float scale = *reinterpret_cast<const float*>(code);
  const size_t begin = size_t{blockIdx.x} * kBlockElements;
  for (unsigned i = threadIdx.x; i < kBlockElements && begin + i < elements; i += kThreads) {
    residual[begin + i] += DecodeInt8(static_cast<int8_t>(code[sizeof(float) + i]), scale);
  }
}

__global__ void ReturnTopKKernel(size_t pairs, const uint2* in, float* residual) {
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < pairs) residual[in[i].x] += FloatOf(in[i].y);
}

// --- sums ------------------------------------------------------------------------------------------------------------

__global__ void SumSquaresKernel(const float* in, size_t elements, double* parts) {
  __shared__ double sums[kThreads];
  double own = 0;
  for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < elements; i += size_t{kSquareSums} * kThreads) {
    own += static_cast<double>(in[i]) * static_cast<double>(in[i]);
  }
  sums[threadIdx.x] = own;
  __syncthreads();
  for (unsigned reach = kThreads / 2; reach > 0; reach /= 2) {
    if (threadIdx.x < reach) sums[threadIdx.x] += sums[threadIdx.x + reach];
    __syncthreads();
  }
  if (threadIdx.x == 0) parts[blockIdx.x] = sums[0];
}

}  // namespace

int EncodeBf16(const DeviceValues& values, std::byte* out, void* stream) {
  return EncodeHalves<Bf16>(values, out, stream);
}
int EncodeFp16(const DeviceValues& values, std::byte* out, void* stream) {
  return EncodeHalves<Fp16>(values, out, stream);
}

int EncodeInt8(const DeviceValues& values, std::byte* out, void* stream) {
  if (values.elements == 0) return 0;
  EncodeInt8Kernel<<<Tiles(values.elements), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      values, reinterpret_cast<unsigned char*>(out));
  return Launched();
}

size_t TopKScratchBytes(size_t elements) { return sizeof(TopKState) + 2 * sizeof(Count) * Tiles(elements); }

int EncodeTopK(uint64_t pairs, const DeviceValues& values, void* scratch, std::byte* out, uint64_t* written,
               void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const unsigned tiles = Tiles(values.elements);
  const TopKScratch memory = Layout(scratch, values.elements);
  auto* const bytes = reinterpret_cast<unsigned char*>(out);
  const float* chosen = values.in;
  if (values.residual != nullptr) {
    AddKernel<<<tiles * kRun, kThreads, 0, on>>>(values);
    chosen = values.residual;
  }
  const unsigned counters = tiles < kHistogramBlocks ? tiles : kHistogramBlocks;
  StartKernel<<<1, kDigits, 0, on>>>(pairs, memory.state);
  for (unsigned known = 0; known < 32; known += 8) {
    HistogramKernel<<<counters, kThreads, 0, on>>>(chosen, values.elements, memory.state);
    NarrowKernel<<<1, kDigits, 0, on>>>(memory.state);
  }
  CountKernel<<<tiles, kThreads, 0, on>>>(chosen, values.elements, memory);
  ScanKernel<<<1, kScanThreads, 0, on>>>(values, tiles, memory, bytes, written);
  WriteKernel<<<tiles, kThreads, 0, on>>>(values, memory, bytes);
  return Launched();
}

int ReturnBf16(const DeviceBytes& in, float* residual, void* stream) {
  return ReturnHalves<Bf16>(in, residual, stream);
}
int ReturnFp16(const DeviceBytes& in, float* residual, void* stream) {
  return ReturnHalves<Fp16>(in, residual, stream);
}

int ReturnInt8(const DeviceBytes& in, float* residual, void* stream) {
  if (in.elements == 0) return 0;
  ReturnInt8Kernel<<<Tiles(in.elements), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      in.elements, reinterpret_cast<const unsigned char*>(in.bytes), residual);
  return Launched();
}

int ReturnTopK(const DeviceBytes& in, float* residual, void* stream) {
  if (in.elements == 0) return 0;
  const auto blocks = static_cast<unsigned>((in.elements + kThreads - 1) / kThreads);
  ReturnTopKKernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      in.elements, reinterpret_cast<const uint2*>(in.bytes), residual);
  return Launched();
}

int SumSquares(const float* in, size_t elements, double* parts, void* stream) {
  SumSquaresKernel<<<kSquareSums, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(in, elements, parts);
  return Launched();
}

}  // namespace slackline::worker::gpu
