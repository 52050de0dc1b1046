#include "images/prepared/mapped_shards.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/log/logging.h"

namespace slackline::images {

absl::StatusOr<std::shared_ptr<const MappedShard>> MappedShards::Open(size_t shard) {
  absl::MutexLock lock(&mutex_);
  if (table_[shard] != nullptr) return table_[shard];
  return absl::FailedPreconditionError(absl::StrCat("found an image of ", names_[shard], ", which is not here"));
}

absl::Status MappedShards::Fetch(const std::vector<bool>& wanted, const FetchWatch& watch) {
  SLACKLINE_CHECK(wanted.size() == names_.size());
  std::vector<size_t> missing;
  {
    absl::MutexLock lock(&mutex_);
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!wanted[i]) table_[i].reset();
      if (wanted[i] && table_[i] == nullptr) missing.push_back(i);
    }
  }
  for (const size_t i : missing) {
    absl::StatusOr<MappedShard> mapped = map_(i, watch);
    if (!mapped.ok()) return mapped.status();
    auto shard = std::make_shared<const MappedShard>(*std::move(mapped));
    absl::MutexLock lock(&mutex_);
    table_[i] = std::move(shard);
  }
  if (!missing.empty()) {
    log::Info("data.sampling: by_file: the next images are in ", absl::c_count(wanted, true), " of ", wanted.size(),
              " files, of which ", missing.size(), " were opened now");
  }
  return absl::OkStatus();
}

}  // namespace slackline::images
