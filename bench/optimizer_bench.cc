// The step from encoded bytes to new weights beside the least that a loop can do with the same memory, and
// copy-on-write beside a snapshot that is copied under a mutex.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "bench/support/beside.h"
#include "bench/support/command_line.h"
#include "bench/support/report.h"
#include "common/base/byte_segments.h"
#include "common/base/check.h"
#include "common/codec/block_decoder.h"
#include "common/codec/encode.h"
#include "common/optimizer/aligned_floats.h"
#include "common/optimizer/kernels.h"
#include "common/optimizer/optimizer.h"
#include "ps/shard/shard_state.h"
#include "ps/shard/slice.h"

namespace slackline::ps {
namespace {

using bench::MeasureBeside;
using bench::Row;

// What one pass over `floats` arrays of float32 names.
double Bytes(uint64_t elements, size_t floats) {
  return static_cast<double>(elements) * static_cast<double>(floats * sizeof(float));
}

AlignedFloats Filled(uint64_t elements, float value) {
  AlignedFloats values = AllocateAlignedFloats(elements);
  std::fill_n(values.get(), elements, value);
  return values;
}

// What all measurements share.
struct Arrays {
  explicit Arrays(uint64_t size)
      : elements(size), gradient(Filled(size, 1e-3f)), weights(Filled(size, 1)), received(Filled(size + 16, 0)) {}

  const uint64_t elements;
  const AlignedFloats gradient;
  const AlignedFloats weights;
  // The gradient as it arrived, encoded.
  const AlignedFloats received;
};

// --- Steps ------------------------------------------------------------------------------------------------------

struct StepCase {
  OptimizerConfig optimizer;
  std::string codec = "fp32";
  // Where the first byte lies behind a cache line.
  size_t offset = 0;
};

// As a push of one worker is applied.
void Step(const codec::Codec& codec, const ByteSegments& received, const Arrays& arrays, OptimizerState& state) {
  alignas(kCacheLineBytes) std::array<float, Slice::kBlockElements> block;
  codec::BlockDecoder decoder(codec, received);
  state.BeginStep({.lr = 0.1});
  for (uint64_t begin = 0; begin < arrays.elements; begin += block.size()) {
    const size_t size = std::min<uint64_t>(block.size(), arrays.elements - begin);
    const float* gradient = decoder.Next(absl::MakeSpan(block).first(size));
    state.StepBlock(begin, {gradient, size}, {arrays.weights.get() + begin, size});
  }
}

// The least that is to be done with the memory of a step: reads what was received as if it were that many floats,
// changes the weights and `more` arrays in place.
template <size_t more>
void ReadModifyWrite(absl::Span<const float> received, const Arrays& arrays, OptimizerState& state) {
  const float* __restrict from = received.data();
  float* __restrict a = arrays.weights.get();
  float* __restrict b = more > 0 ? state.mutable_array(0).data() : nullptr;
  float* __restrict c = more > 1 ? state.mutable_array(1).data() : nullptr;
  for (uint64_t i = 0; i < received.size(); ++i) {
    a[i] += from[i];
    if constexpr (more > 0) b[i] += from[i];
    if constexpr (more > 1) c[i] += from[i];
  }
  // Fewer bytes than floats were received: there is nothing to read for the rest.
  for (uint64_t i = received.size(); i < arrays.elements; ++i) {
    a[i] += 1e-3f;
    if constexpr (more > 0) b[i] += 1e-3f;
    if constexpr (more > 1) c[i] += 1e-3f;
  }
}

void ReadModifyWrite(absl::Span<const float> received, const Arrays& arrays, OptimizerState& state) {
  switch (state.arrays()) {
    case 0:
      return ReadModifyWrite<0>(received, arrays, state);
    case 1:
      return ReadModifyWrite<1>(received, arrays, state);
    default:
      return ReadModifyWrite<2>(received, arrays, state);
  }
}

Row MeasureStep(const std::string& name, const StepCase& one, const Arrays& arrays, double seconds) {
  const codec::Codec codec = codec::ParseCodec(one.codec).value();
  const absl::Span<std::byte> room(reinterpret_cast<std::byte*>(arrays.received.get()) + one.offset,
                                   codec::EncodedBytesMax(codec, arrays.elements));
  const size_t size = codec::Encode(codec, {arrays.gradient.get(), arrays.elements}, room);
  const ByteSegments received(room.first(size));
  const absl::Span<const float> as_floats(arrays.received.get(), size / sizeof(float));
  OptimizerState state(one.optimizer, arrays.elements);
  const double bytes = static_cast<double>(size) + Bytes(arrays.elements, 2 + 2 * state.arrays());
  return MeasureBeside(name, seconds, {bytes, [&] { Step(codec, received, arrays, state); }},
                       {bytes, [&] { ReadModifyWrite(as_floats, arrays, state); }});
}

// --- Snapshots --------------------------------------------------------------------------------------------------

SliceShape Shape(const Arrays& arrays) { return {.elements = arrays.elements, .chunk_elements = 262144}; }

void StepSlice(const Arrays& arrays, Slice& slice) {
  slice.Update([&](uint64_t begin, absl::Span<float> values) {
    SgdStep({.lr = 0.1f}, {values.size(), arrays.gradient.get() + begin, values.data()});
  });
}

// A step while a reader still holds the version before it.
void StepCopyOnWrite(const Arrays& arrays, Slice& slice) {
  const SliceView view = slice.View();
  StepSlice(arrays, slice);
}

// The snapshot is copied under the mutex that steps take.
void StepMutexAndCopy(const Arrays& arrays, absl::Mutex& mutex, float* snapshot) {
  {
    absl::MutexLock lock(&mutex);
    std::memcpy(snapshot, arrays.weights.get(), arrays.elements * sizeof(float));
  }
  absl::MutexLock lock(&mutex);
  SgdStep({.lr = 0.1f}, {arrays.elements, arrays.gradient.get(), arrays.weights.get()});
}

Row CopyOnWriteBesideInPlace(const std::string& name, const Arrays& arrays, double seconds) {
  Slice held(Shape(arrays)), alone(Shape(arrays));
  const double bytes = Bytes(arrays.elements, 3);
  return MeasureBeside(name, seconds, {bytes, [&] { StepCopyOnWrite(arrays, held); }},
                       {bytes, [&] { StepSlice(arrays, alone); }});
}

Row CopyOnWriteBesideMutex(const std::string& name, const Arrays& arrays, double seconds) {
  Slice held(Shape(arrays));
  const AlignedFloats snapshot = Filled(arrays.elements, 0);
  absl::Mutex mutex;
  const double bytes = Bytes(arrays.elements, 3);
  return MeasureBeside(name, seconds, {bytes, [&] { StepCopyOnWrite(arrays, held); }},
                       {bytes, [&] { StepMutexAndCopy(arrays, mutex, snapshot.get()); }});
}

// --- Prediction -------------------------------------------------------------------------------------------------

ShardState SeededShard(const OptimizerConfig& optimizer, const Arrays& arrays) {
  ShardState shard({.begin = 0, .end = arrays.elements, .trained = arrays.elements}, optimizer,
                   Shape(arrays).chunk_elements);
  const absl::Span<const float> weights(arrays.weights.get(), arrays.elements);
  SLACKLINE_CHECK(shard.Seed(ByteSegments(AsBytes(weights))).ok());
  return shard;
}

// A step of Adam on one push, with and without predicted weights for the next pulls.
Row PredictionBesideNone(const std::string& name, const Arrays& arrays, double seconds) {
  OptimizerConfig config{.kind = OptimizerKind::kAdam, .lr = 1e-6};
  ShardState plain = SeededShard(config, arrays);
  config.predicts = true;
  ShardState predicting = SeededShard(config, arrays);
  const absl::Span<const float> gradient(arrays.gradient.get(), arrays.elements);
  const std::vector<Contribution> push = {
      {.pieces = {{.elements = arrays.elements, .bytes = ByteSegments(AsBytes(gradient))}}}};
  // Gradient; weights and two arrays, read and written.
  const double bytes = Bytes(arrays.elements, 7);
  return MeasureBeside(name, seconds, {bytes, [&] { predicting.Apply(push, {.staleness = 1, .workers = 2}); }},
                       {bytes, [&] { plain.Apply(push, {.staleness = 1, .workers = 2}); }});
}

// --- Program ----------------------------------------------------------------------------------------------------

struct Measurement {
  std::string name;
  std::function<Row(const std::string& name, const Arrays& arrays, double seconds)> measure;
};

Measurement Of(std::string name, StepCase one) {
  return {std::move(name), [one = std::move(one)](const std::string& what, const Arrays& arrays, double seconds) {
            return MeasureStep(what, one, arrays, seconds);
          }};
}

std::vector<Measurement> Measurements() {
  const auto with = [](OptimizerKind kind, double momentum, bool nesterov) {
    return OptimizerConfig{.kind = kind, .momentum = momentum, .nesterov = nesterov, .weight_decay = 1e-4};
  };
  const OptimizerConfig sgd = with(OptimizerKind::kSgd, 0, false);
  const OptimizerConfig adam = with(OptimizerKind::kAdam, 0, false);
  return {Of("sgd", {.optimizer = sgd}),
          Of("momentum", {.optimizer = with(OptimizerKind::kSgd, 0.9, false)}),
          Of("nesterov", {.optimizer = with(OptimizerKind::kSgd, 0.9, true)}),
          Of("adam", {.optimizer = adam}),
          Of("adamw", {.optimizer = with(OptimizerKind::kAdamW, 0, false)}),
          Of("sgd_odd_byte", {.optimizer = sgd, .offset = 1}),
          Of("adam_odd_byte", {.optimizer = adam, .offset = 1}),
          Of("bf16_sgd", {.optimizer = sgd, .codec = "bf16"}),
          Of("fp16_sgd", {.optimizer = sgd, .codec = "fp16"}),
          Of("int8_sgd", {.optimizer = sgd, .codec = "int8"}),
          Of("topk_sgd", {.optimizer = sgd, .codec = "topk:0.01"}),
          {"copy_on_write_over_in_place", CopyOnWriteBesideInPlace},
          {"copy_on_write_over_mutex_and_copy", CopyOnWriteBesideMutex},
          {"prediction_over_none", PredictionBesideNone}};
}

int Main(int argc, char** argv) {
  const std::vector<Measurement> all = Measurements();
  std::set<std::string> names;
  for (const Measurement& one : all) names.insert(one.name);

  double megabytes = 100;
  std::set<std::string> only = names;
  bench::Effort effort{.seconds = 0.8};
  CLI::App app("Steps and snapshots beside what the memory gives.", "optimizer_bench");
  app.add_option("--megabytes", megabytes, "Size of the weights, 10^6 bytes")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e5));
  app.add_option("--only", only, "Names of what is measured (default: all)")->check(CLI::IsMember(names));
  bench::AddEffort(app, effort);
  if (const auto exit_code = bench::Parse(app, argc, argv)) return *exit_code;

  const Arrays arrays(static_cast<uint64_t>(megabytes * 1e6) / sizeof(float));
  bench::Report report(effort.json);
  for (int repeat = 0; repeat < effort.repeats; ++repeat) {
    for (const Measurement& one : all) {
      if (only.contains(one.name)) report.Add(one.measure(one.name, arrays, effort.seconds));
    }
  }
  report.Finish();
  return 0;
}

}  // namespace
}  // namespace slackline::ps

int main(int argc, char** argv) { return slackline::ps::Main(argc, argv); }
