#include "images/prepared/spread_shards.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/log/logging.h"
#include "common/storage/checksum.h"
#include "common/time/clock.h"
#include "images/prepared/prepared_check.h"

namespace slackline::images {
namespace {

// Time after which a thread that could not get a file, or ask for one, tries again.
constexpr absl::Duration kRetry = absl::Seconds(1);
// Number of places that a file is asked of before it is read from its origin.
constexpr int kPlacesMax = 4;

}  // namespace

absl::StatusOr<std::shared_ptr<SpreadShards>> SpreadShards::Begin(Parts parts) {
  SLACKLINE_CHECK(parts.store.peers != nullptr && !parts.store.cache_folder.empty());
  parts.store.fetch.watch = [stop = parts.stop.get()] {
    return stop->load() ? absl::CancelledError("stopped") : absl::OkStatus();
  };
  absl::StatusOr<PreparedStore> share = PreparedStore::Open(parts.store);
  if (!share.ok()) return share.status();
  absl::StatusOr<PreparedStore> need = PreparedStore::Open(parts.store);
  if (!need.ok()) return need.status();
  return std::shared_ptr<SpreadShards>(new SpreadShards(std::move(parts), *std::move(share), *std::move(need)));
}

SpreadShards::SpreadShards(Parts parts, PreparedStore share_store, PreparedStore need_store)
    : parts_(std::move(parts)),
      peers_(*parts_.store.peers),
      share_store_(std::move(share_store)),
      need_store_(std::move(need_store)) {
  LookIntoCache();
  thread_ = std::thread([this] { GetShare(); });
}

SpreadShards::~SpreadShards() {
  Stop();
  thread_.join();
}

void SpreadShards::Stop() {
  parts_.stop->store(true);
  absl::MutexLock lock(&mutex_);
  stop_ = true;
}

void SpreadShards::LookIntoCache() {
  for (size_t shard = 0; shard < parts_.shards.size(); ++shard) {
    const std::optional<HeldFile> held = share_store_.Find(parts_.shards[shard].images);
    if (!held) continue;
    // A copy that cannot be mapped is got again when it is needed, which says why.
    const absl::Status kept = Keep(shard, *held).status();
    if (!kept.ok()) log::Warning("data.cache.spread: ", kept.message());
  }
}

void SpreadShards::GetShare() {
  absl::MutexLock lock(&mutex_);
  while (!stop_) {
    mutex_.Unlock();
    const absl::Duration retry = GetNext();
    mutex_.Lock();
    if (retry > absl::ZeroDuration()) mutex_.AwaitWithTimeout(absl::Condition(&stop_), retry);
  }
}

absl::Duration SpreadShards::GetNext() {
  const absl::StatusOr<ImagePeers::Share> share = peers_.NextShare();
  if (!std::exchange(asked_in_vain_, !share.ok()) && !share.ok()) {
    log::Warning("data.cache.spread: ", share.status().message());
  }
  if (!share.ok()) return kRetry;
  if (share->drop) {
    {
      absl::MutexLock lock(&mutex_);
      kept_.erase(*share->drop);
    }
    peers_.Lose(*share->drop);
    SetFull(false);
    return absl::ZeroDuration();
  }
  if (!share->file) return share->retry;
  const absl::StatusOr<HeldFile> held = share_store_.Keep(parts_.shards[*share->file].images);
  if (absl::IsResourceExhausted(held.status())) {
    SetFull(true);
    return absl::ZeroDuration();
  }
  const absl::Status kept = held.ok() ? Keep(*share->file, *held).status() : held.status();
  if (kept.ok() || absl::IsCancelled(kept)) return absl::ZeroDuration();
  log::Warning("data.cache.spread: ", kept.message());
  return kRetry;
}

absl::StatusOr<SpreadShards::Shard> SpreadShards::Open(size_t shard) {
  if (Shard here = Here(shard)) return here;
  absl::MutexLock lock(&getting_);
  // Another thread may have got it meanwhile.
  if (Shard here = Here(shard)) return here;
  return Get(shard);
}

SpreadShards::Shard SpreadShards::Here(size_t shard) {
  absl::MutexLock lock(&mutex_);
  if (const auto kept = kept_.find(shard); kept != kept_.end()) return kept->second;
  const auto borrowed =
      std::find_if(borrowed_.begin(), borrowed_.end(), [&](const auto& one) { return one.first == shard; });
  if (borrowed == borrowed_.end()) return nullptr;
  borrowed_.splice(borrowed_.begin(), borrowed_, borrowed);
  return borrowed_.front().second;
}

absl::StatusOr<SpreadShards::Shard> SpreadShards::Get(size_t shard) {
  const PreparedFile& file = parts_.shards[shard].images;
  // Another worker of this node may keep it.
  if (const std::optional<HeldFile> held = need_store_.Find(file)) return Keep(shard, *held);
  const absl::Time end = SteadyTime().Now() + parts_.store.fetch.give_up;
  for (int places = 0; places < kPlacesMax && SteadyTime().Now() < end;) {
    if (parts_.stop->load()) return absl::CancelledError(absl::StrCat("stopped before ", file.name, " came"));
    const absl::StatusOr<std::optional<ImagePeers::Source>> source = peers_.Find(shard);
    if (!source.ok()) {
      log::Warning("data.cache.spread: ", source.status().message(), "; ", file.name, " comes from ",
                   need_store_.path());
      break;
    }
    if (Shard here = Here(shard)) return here;
    if (!*source) continue;
    if ((*source)->peer.empty()) break;
    ++places;
    absl::StatusOr<std::string> bytes = peers_.Read(**source);
    if (!bytes.ok()) continue;
    if (bytes->size() == file.bytes && ChecksumOf(*bytes) == file.checksum) return Borrow(shard, *std::move(bytes));
    peers_.SentOtherBytes(**source);
  }
  return FromOrigin(shard);
}

absl::StatusOr<SpreadShards::Shard> SpreadShards::FromOrigin(size_t shard) {
  const PreparedFile& file = parts_.shards[shard].images;
  if (!IsFull()) {
    const absl::StatusOr<HeldFile> held = need_store_.Keep(file);
    if (held.ok()) return Keep(shard, *held);
    if (!absl::IsResourceExhausted(held.status())) return held.status();
    SetFull(true);
  }
  absl::StatusOr<std::string> bytes = need_store_.Read(file);
  if (!bytes.ok()) return bytes.status();
  return Borrow(shard, *std::move(bytes));
}

absl::StatusOr<SpreadShards::Shard> SpreadShards::Keep(size_t shard, const HeldFile& held) {
  absl::StatusOr<MappedShard> mapped =
      OpenPixels([&](const PreparedFile&, const FetchWatch&) -> absl::StatusOr<HeldFile> { return held; },
                 parts_.shards[shard], parts_.index);
  if (!mapped.ok()) return mapped.status();
  if (absl::Status good = Check(*mapped, shard); !good.ok()) return good;
  auto kept = std::make_shared<const MappedShard>(*std::move(mapped));
  {
    absl::MutexLock lock(&mutex_);
    kept_[shard] = kept;
    borrowed_.remove_if([&](const auto& one) { return one.first == shard; });
  }
  peers_.Have(shard, held.path);
  return kept;
}

absl::StatusOr<SpreadShards::Shard> SpreadShards::Borrow(size_t shard, std::string file) {
  absl::StatusOr<MappedShard> mapped =
      PixelsInMemory(std::make_shared<const std::string>(std::move(file)), parts_.shards[shard], parts_.index);
  if (!mapped.ok()) return mapped.status();
  if (absl::Status good = Check(*mapped, shard); !good.ok()) return good;
  auto borrowed = std::make_shared<const MappedShard>(*std::move(mapped));
  absl::MutexLock lock(&mutex_);
  borrowed_.emplace_front(shard, borrowed);
  if (borrowed_.size() > kBorrowedMax) borrowed_.pop_back();
  return borrowed;
}

absl::Status SpreadShards::Check(const MappedShard& mapped, size_t shard) const {
  return parts_.verify ? CheckPixels(mapped, parts_.shards[shard], parts_.index) : absl::OkStatus();
}

void SpreadShards::SetFull(bool full) {
  bool changed = false;
  size_t kept = 0;
  {
    absl::MutexLock lock(&mutex_);
    changed = std::exchange(full_, full) != full;
    kept = kept_.size();
  }
  peers_.SetFull(full);
  if (changed && full) {
    log::Info("data.cache.spread: the cache is full; this node keeps ", kept, " of ", parts_.shards.size(), " files");
  }
}

bool SpreadShards::IsFull() const {
  absl::MutexLock lock(&mutex_);
  return full_;
}

std::vector<uint32_t> SpreadShards::Borrowed() const {
  absl::MutexLock lock(&mutex_);
  std::vector<uint32_t> shards;
  for (const auto& [shard, mapped] : borrowed_) shards.push_back(static_cast<uint32_t>(shard));
  return shards;
}

}  // namespace slackline::images
