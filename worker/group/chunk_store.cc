#include "worker/group/chunk_store.h"

#include <algorithm>

#include "common/base/check.h"

namespace slackline::worker {

absl::Status ChunkStore::Plan(std::vector<PlannedChunk> chunks) {
  {
    absl::MutexLock lock(&mutex_);
    steps_.clear();
    returned_.clear();
  }
  pool_ = std::make_shared<Pool>();
  plan_ = ChunkPlan(std::move(chunks));
  absl::Status prepared = device_.prepare(plan_);
  if (prepared.ok() && !plan_.empty()) {
    // Whether there is memory is better known now than in a step.
    absl::StatusOr<Block> block = device_.allocate(plan_.block_bytes());
    prepared = block.status();
    absl::MutexLock lock(&pool_->mutex);
    if (block.ok()) pool_->free.push_back(*std::move(block));
  }
  if (!prepared.ok()) {
    plan_ = ChunkPlan();
    device_.prepare(plan_).IgnoreError();
  }
  return prepared;
}

ChunkStore::Block ChunkStore::Lend(const std::shared_ptr<Pool>& pool, Block block) {
  std::byte* const bytes = block.get();
  return Block(bytes, [pool, block = std::move(block)](std::byte*) {
    absl::MutexLock lock(&pool->mutex);
    pool->free.push_back(block);
  });
}

absl::StatusOr<std::byte*> ChunkStore::Begin(const float* push) {
  SLACKLINE_CHECK(!plan_.empty());
  absl::MutexLock lock(&mutex_);
  // The step before that wrote there is finished.
  std::erase_if(steps_, [=](const auto& step) { return step.first == push; });
  Block block;
  {
    absl::MutexLock pool_lock(&pool_->mutex);
    if (!pool_->free.empty()) {
      block = std::move(pool_->free.back());
      pool_->free.pop_back();
    }
  }
  if (block == nullptr) {
    absl::StatusOr<Block> made = device_.allocate(plan_.block_bytes());
    if (!made.ok()) return made.status();
    block = *std::move(made);
  }
  steps_.emplace_back(push, Lend(pool_, std::move(block)));
  return steps_.back().second.get();
}

EncodedBytes ChunkStore::Take(const float* push, size_t chunk) {
  absl::MutexLock lock(&mutex_);
  const auto step = std::find_if(steps_.begin(), steps_.end(), [=](const auto& each) { return each.first == push; });
  SLACKLINE_CHECK(step != steps_.end());
  const Block& block = step->second;
  return {{block, block.get() + plan_.place(chunk)}, plan_.SizeIn(block.get(), chunk)};
}

void ChunkStore::Return(size_t chunk, EncodedBytes bytes) {
  absl::MutexLock lock(&mutex_);
  returned_.push_back({chunk, std::move(bytes)});
}

std::vector<ChunkStore::Returned> ChunkStore::TakeReturned() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(returned_, {});
}

}  // namespace slackline::worker
