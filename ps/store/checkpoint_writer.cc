#include "ps/store/checkpoint_writer.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace slackline::ps {

CheckpointWriter::CheckpointWriter(Done done) : done_(std::move(done)), thread_([this] { Run(); }) {}

CheckpointWriter::~CheckpointWriter() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

void CheckpointWriter::Write(CheckpointCut cut) {
  absl::MutexLock lock(&mutex_);
  next_ = std::move(cut);
}

bool CheckpointWriter::Superseded() {
  absl::MutexLock lock(&mutex_);
  return HasWork();
}

void CheckpointWriter::Run() {
  while (true) {
    std::optional<CheckpointCut> cut;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &CheckpointWriter::HasWork));
      if (stop_) return;
      cut = std::exchange(next_, std::nullopt);
    }
    const Written written = WriteAll(*cut);
    const uint64_t checkpoint = cut->checkpoint;
    const uint32_t attempt = cut->attempt;
    // Its references go before others hear of it: memory is held no longer than needed.
    cut.reset();
    if (!absl::IsCancelled(written.status())) done_(checkpoint, attempt, written);
  }
}

CheckpointWriter::Written CheckpointWriter::WriteAll(const CheckpointCut& cut) {
  std::error_code error;
  std::filesystem::create_directories(cut.folder, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot make ", cut.folder, ": ", error.message()));
  std::vector<wire::CheckpointFile> files;
  for (const ShardCut& shard : cut.shards) {
    absl::StatusOr<wire::CheckpointFile> file = WriteCut(cut.folder, cut.job, shard, [this] { return Superseded(); });
    if (!file.ok()) {
      return absl::Status(file.status().code(),
                          absl::StrCat("shard ", shard.shard.value(), ": ", file.status().message()));
    }
    files.push_back(*std::move(file));
  }
  return files;
}

}  // namespace slackline::ps
