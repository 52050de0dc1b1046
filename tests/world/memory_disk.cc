#include "tests/world/memory_disk.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace slackline::world {

class MemoryDatabase : public Database {
 public:
  MemoryDatabase(MemoryDisk& disk, std::string folder, LifeId life)
      : disk_(disk), folder_(std::move(folder)), life_(life) {}
  ~MemoryDatabase() override {
    MemoryDisk::Folder& folder = disk_.folders_[folder_];
    if (folder.open == life_) folder.open = 0;
  }

  absl::StatusOr<std::optional<std::string>> Get(absl::string_view key) const override {
    const auto found = values().find(std::string(key));
    if (found == values().end()) return std::nullopt;
    if (found->second.broken && !disk_.no_checksums_) return absl::DataLossError("a checksum does not fit");
    return found->second.bytes;
  }
  absl::Status ForEach(char letter, const Visit& visit) const override {
    for (auto at = values().lower_bound(std::string(1, letter)); at != values().end() && at->first[0] == letter; ++at) {
      visit(at->first, at->second.bytes);
    }
    return absl::OkStatus();
  }
  absl::Status PutSynced(absl::string_view key, absl::string_view value) override {
    if (absl::Status status = disk_.Writes(life_); !status.ok()) return status;
    if (disk_.Effect(life_)) values()[std::string(key)] = {std::string(value)};
    return absl::OkStatus();
  }
  absl::Status DeleteSynced(absl::string_view key) override {
    if (absl::Status status = disk_.Writes(life_); !status.ok()) return status;
    if (disk_.Effect(life_)) values().erase(std::string(key));
    return absl::OkStatus();
  }
  absl::Status Tidy(char /*letter*/) override { return absl::OkStatus(); }
  absl::Status DropFiles(absl::string_view begin, absl::string_view end) override {
    if (!disk_.Effect(life_)) return absl::OkStatus();
    values().erase(values().lower_bound(std::string(begin)), values().lower_bound(std::string(end)));
    return absl::OkStatus();
  }
  std::unique_ptr<Files> NewFiles(uint64_t /*bytes_max*/) override { return std::make_unique<NewValues>(*this); }

 private:
  class NewValues : public Files {
   public:
    explicit NewValues(MemoryDatabase& database) : database_(database) {}
    absl::Status Put(absl::string_view key, absl::string_view value) override {
      values_.emplace_back(key, value);
      return database_.disk_.Writes(database_.life_);
    }
    absl::Status Ingest() override {
      if (absl::Status status = database_.disk_.Writes(database_.life_); !status.ok()) return status;
      if (!database_.disk_.Effect(database_.life_)) return absl::OkStatus();
      for (const auto& [key, value] : values_) database_.values()[key] = {value};
      return absl::OkStatus();
    }

   private:
    MemoryDatabase& database_;
    std::vector<std::pair<std::string, std::string>> values_;
  };

  std::map<std::string, MemoryDisk::Value>& values() { return disk_.folders_[folder_].values; }
  const std::map<std::string, MemoryDisk::Value>& values() const { return disk_.folders_[folder_].values; }

  MemoryDisk& disk_;
  const std::string folder_;
  const LifeId life_;
};

absl::StatusOr<std::unique_ptr<Database>> MemoryDisk::Open(const std::filesystem::path& folder, LifeId life) {
  Folder& wanted = folders_[folder.string()];
  if (wanted.open != 0 && wanted.open != life) {
    return absl::AbortedError(absl::StrCat(folder.string(), ": another process has it open"));
  }
  wanted.open = life;
  return std::make_unique<MemoryDatabase>(*this, folder.string(), life);
}

void MemoryDisk::Gone(LifeId life) {
  for (auto& [name, folder] : folders_) {
    if (folder.open == life) folder.open = 0;
  }
  failing_.erase(life);
  writes_left_.erase(life);
}

absl::Status MemoryDisk::Writes(LifeId life) {
  if (failing_.contains(life)) return absl::ResourceExhaustedError("no space left on device");
  return absl::OkStatus();
}

bool MemoryDisk::Effect(LifeId life) {
  const auto left = writes_left_.find(life);
  if (left == writes_left_.end()) return true;
  if (left->second == 0) return false;
  --left->second;
  return true;
}

bool MemoryDisk::Tear(const std::string& folder, uint64_t which) {
  std::map<std::string, Value>& values = folders_[folder].values;
  // Keys rise with the numbers of snapshots: manifests behind arrays, each in order. See snapshot_store.cc.
  std::vector<std::string> manifests;
  for (auto at = values.lower_bound("m"); at != values.end() && at->first[0] == 'm'; ++at)
    manifests.push_back(at->first);
  if (manifests.size() < 2) return false;
  const std::string newest = "a" + manifests.back().substr(1);
  std::vector<std::string> blocks;
  for (auto at = values.lower_bound(newest); at != values.end() && at->first.starts_with(newest); ++at) {
    blocks.push_back(at->first);
  }
  if (blocks.empty()) return false;
  const std::string& block = blocks[which % blocks.size()];
  // Missing; or there, with what was in that place of the disk before.
  if (which / blocks.size() % 2 == 0 && !no_checksums_) {
    values.erase(block);
  } else {
    Value& value = values[block];
    value.broken = true;
    value.bytes.assign(value.bytes.size(), '\0');
  }
  return true;
}

}  // namespace slackline::world
