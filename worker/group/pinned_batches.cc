#include "worker/group/pinned_batches.h"

#include <new>

#include "common/base/check.h"

namespace slackline::worker {
namespace {

PinnedBatches::Block Plain(size_t bytes) {
  constexpr std::align_val_t kAlignment{images::kBatchAlignment};
  return PinnedBatches::Block(static_cast<std::byte*>(::operator new(bytes, kAlignment)),
                              [](std::byte* memory) { ::operator delete(memory, kAlignment); });
}

}  // namespace

void* PinnedBatches::Allocate(size_t bytes) {
  absl::StatusOr<Block> block = host_.pin(bytes);
  const absl::Status said = block.status();
  if (!said.ok()) block = Plain(bytes);
  void* const memory = block->get();
  bool first = false;
  {
    absl::MutexLock lock(&mutex_);
    if (!said.ok()) first = !std::exchange(refused_, true);
    out_.emplace(memory, *std::move(block));
  }
  if (first) host_.on_refusal(said);
  return memory;
}

void PinnedBatches::Free(void* memory) {
  Block block;
  absl::MutexLock lock(&mutex_);
  const auto found = out_.find(memory);
  SLACKLINE_CHECK(found != out_.end());
  block = std::move(found->second);
  out_.erase(found);
}

}  // namespace slackline::worker
