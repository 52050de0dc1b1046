#include "common/storage/database.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>
#include <rocksdb/slice.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table.h>

#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/process/kill_point.h"

namespace slackline {
namespace {

// Where files are written before the database takes them in.
constexpr char kIncoming[] = "incoming";

rocksdb::Slice ToSlice(absl::string_view text) { return {text.data(), text.size()}; }

absl::string_view FromSlice(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

absl::Status FromRocks(const std::filesystem::path& folder, const rocksdb::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const std::string text = absl::StrCat(folder.string(), ": ", status.ToString());
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(text);
  if (status.IsCorruption()) return absl::DataLossError(text);
  return absl::UnavailableError(text);
}

// Room that RocksDB needs for its own files when it opens a database, or recovers from an error. The file kReserve in
// the database's folder takes a little more: a process that starts on a full disk removes it, and has room.
constexpr uint64_t kRoomMin = 96 << 10;
constexpr uint64_t kReserveBytes = 128 << 10;
constexpr char kReserve[] = "reserve";

// Checks that RocksDB can open a database in `folder`, or recover from an error there. Debian builds RocksDB with
// assertions, and one of them aborts the process if a file cannot grow meanwhile.
//   kResourceExhausted  there is too little room for RocksDB's own files
absl::Status CheckRoom(const std::filesystem::path& folder) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return absl::OkStatus();  // the database itself says what is wrong
  const uint64_t room = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (room < kRoomMin) {
    return absl::ResourceExhaustedError(absl::StrCat(folder.string(), ": No space left on device: ", room >> 10,
                                                     " KiB are free; allowed are at least ", kRoomMin >> 10));
  }
  // Some file systems count no files.
  if (disk.f_files > 0 && disk.f_favail < 16) {
    return absl::ResourceExhaustedError(absl::StrCat(folder.string(), ": No space left on device: it has room for ",
                                                     uint64_t{disk.f_favail},
                                                     " more files (inodes); allowed are at least 16"));
  }
  return absl::OkStatus();
}

// Takes the room that the next process needs to open the database. If this fails, the next process tries again.
void Reserve(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::path path = folder / kReserve;
  if (std::filesystem::file_size(path, error) == kReserveBytes && !error) return;
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return;
  const bool taken = ::posix_fallocate(file, 0, kReserveBytes) == 0;
  ::close(file);
  if (!taken) std::filesystem::remove(path, error);
}

rocksdb::Options MakeOptions(rocksdb::Env* disk) {
  rocksdb::BlockBasedTableOptions table;
  table.no_block_cache = true;
  table.checksum = rocksdb::kXXH3;
  rocksdb::Options options;
  if (disk != nullptr) options.env = disk;
  options.create_if_missing = true;
  options.paranoid_checks = true;
  options.compression = rocksdb::kNoCompression;
  options.disable_auto_compactions = true;
  // Only manifests and the like go through here.
  options.write_buffer_size = 1 << 20;
  options.max_background_jobs = 2;
  options.manifest_preallocation_size = 64 << 10;  // else 4 MiB of the disk
  options.keep_log_file_num = 2;
  options.max_log_file_size = 1 << 20;
  options.info_log_level = rocksdb::WARN_LEVEL;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

class RocksDatabase : public Database {
 public:
  RocksDatabase(std::filesystem::path folder, std::unique_ptr<rocksdb::DB> database)
      : folder_(std::move(folder)), database_(std::move(database)) {}

  absl::StatusOr<std::optional<std::string>> Get(absl::string_view key) const override;
  absl::Status ForEach(char letter, const Visit& visit) const override;
  absl::Status PutSynced(absl::string_view key, absl::string_view value) override;
  absl::Status DeleteSynced(absl::string_view key) override;
  absl::Status Tidy(char letter) override;
  absl::Status DropFiles(absl::string_view begin, absl::string_view end) override;
  std::unique_ptr<Files> NewFiles(uint64_t bytes_max) override;

 private:
  class NewSstFiles;

  // What has failed once, for want of space, is tried again.
  void Resume();

  const std::filesystem::path folder_;
  const std::unique_ptr<rocksdb::DB> database_;
};

class RocksDatabase::NewSstFiles : public Database::Files {
 public:
  NewSstFiles(RocksDatabase& database, uint64_t bytes_max) : database_(database), bytes_max_(bytes_max) {}
  ~NewSstFiles() override;

  absl::Status Put(absl::string_view key, absl::string_view value) override;
  absl::Status Ingest() override;

 private:
  absl::Status Finish();

  RocksDatabase& database_;
  const uint64_t bytes_max_;
  std::unique_ptr<rocksdb::SstFileWriter> writer_;
  uint64_t bytes_ = 0;  // in the open file
  std::vector<std::string> paths_;
};

absl::StatusOr<std::optional<std::string>> RocksDatabase::Get(absl::string_view key) const {
  std::string value;
  const rocksdb::Status status = database_->Get(rocksdb::ReadOptions(), ToSlice(key), &value);
  if (status.IsNotFound()) return std::nullopt;
  if (!status.ok()) return FromRocks(folder_, status);
  return value;
}

absl::Status RocksDatabase::ForEach(char letter, const Visit& visit) const {
  const std::unique_ptr<rocksdb::Iterator> at(database_->NewIterator(rocksdb::ReadOptions()));
  for (at->Seek({&letter, 1}); at->Valid() && at->key()[0] == letter; at->Next()) {
    visit(FromSlice(at->key()), FromSlice(at->value()));
  }
  return FromRocks(folder_, at->status());
}

absl::Status RocksDatabase::PutSynced(absl::string_view key, absl::string_view value) {
  Resume();
  rocksdb::WriteOptions options;
  options.sync = true;
  kill_point::Passed("put");
  const absl::Status put = FromRocks(folder_, database_->Put(options, ToSlice(key), ToSlice(value)));
  kill_point::Passed("put-done");
  return put;
}

absl::Status RocksDatabase::DeleteSynced(absl::string_view key) {
  Resume();
  rocksdb::WriteOptions options;
  options.sync = true;
  const absl::Status deleted = FromRocks(folder_, database_->Delete(options, ToSlice(key)));
  kill_point::Passed("delete-done");
  return deleted;
}

absl::Status RocksDatabase::Tidy(char letter) {
  const char behind = static_cast<char>(letter + 1);
  const rocksdb::Slice begin(&letter, 1), end(&behind, 1);
  return FromRocks(folder_, database_->CompactRange(rocksdb::CompactRangeOptions(), &begin, &end));
}

absl::Status RocksDatabase::DropFiles(absl::string_view begin, absl::string_view end) {
  const rocksdb::Slice from = ToSlice(begin), to = ToSlice(end);
  return FromRocks(folder_, rocksdb::DeleteFilesInRange(database_.get(), database_->DefaultColumnFamily(), &from, &to,
                                                        /*include_end=*/false));
}

void RocksDatabase::Resume() {
  if (!CheckRoom(folder_).ok()) return;
  // Without an error to recover from this does nothing.
  const rocksdb::Status status = database_->Resume();
  status.PermitUncheckedError();
}

// --- Files ------------------------------------------------------------------------------------------------------

std::unique_ptr<Database::Files> RocksDatabase::NewFiles(uint64_t bytes_max) {
  return std::make_unique<NewSstFiles>(*this, bytes_max);
}

RocksDatabase::NewSstFiles::~NewSstFiles() {
  writer_.reset();
  std::error_code ignored;
  for (const std::string& path : paths_) std::filesystem::remove(path, ignored);
}

absl::Status RocksDatabase::NewSstFiles::Put(absl::string_view key, absl::string_view value) {
  if (writer_ == nullptr) {
    const std::filesystem::path path = database_.folder_ / kIncoming / absl::StrCat(paths_.size(), ".sst");
    paths_.push_back(path.string());
    writer_ = std::make_unique<rocksdb::SstFileWriter>(rocksdb::EnvOptions(), database_.database_->GetOptions());
    bytes_ = 0;
    if (const rocksdb::Status opened = writer_->Open(paths_.back()); !opened.ok()) {
      return FromRocks(database_.folder_, opened);
    }
  }
  if (const rocksdb::Status put = writer_->Put(ToSlice(key), ToSlice(value)); !put.ok()) {
    return FromRocks(database_.folder_, put);
  }
  bytes_ += key.size() + value.size();
  return bytes_ < bytes_max_ ? absl::OkStatus() : Finish();
}

absl::Status RocksDatabase::NewSstFiles::Finish() {
  const rocksdb::Status finished = writer_->Finish();
  writer_.reset();
  return FromRocks(database_.folder_, finished);
}

absl::Status RocksDatabase::NewSstFiles::Ingest() {
  if (writer_ != nullptr) {
    if (absl::Status status = Finish(); !status.ok()) return status;
  }
  if (paths_.empty()) return absl::OkStatus();
  rocksdb::IngestExternalFileOptions options;
  options.move_files = true;
  options.snapshot_consistency = false;
  options.allow_blocking_flush = false;
  database_.Resume();
  kill_point::Passed("ingest");
  const absl::Status done = FromRocks(database_.folder_, database_.database_->IngestExternalFile(paths_, options));
  kill_point::Passed("ingest-done");
  return done;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::filesystem::path& folder, rocksdb::Env* disk) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return absl::UnavailableError(absl::StrCat(folder.string(), ": ", error.message()));
  absl::Status room = CheckRoom(folder);
  if (!room.ok() && std::filesystem::remove(folder / kReserve, error)) room = CheckRoom(folder);
  if (!room.ok()) return room;
  rocksdb::DB* opened = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(MakeOptions(disk), folder.string(), &opened);
  if (!status.ok()) {
    for (const int error : {ENOLCK, ENOSYS, EOPNOTSUPP}) {
      // RocksDB says ENOLCK of its own, too, where this process itself has it open.
      if (!status.IsIOError() || absl::StrContains(status.ToString(), "current process") ||
          !absl::StrContains(status.ToString(), ::strerror(error))) {
        continue;
      }
      return absl::UnavailableError(absl::StrCat(
          folder.string(), ": the file system knows no locks (", ::strerror(error),
          "), which the databases of a run need: the scheduler's state in the run folder, snapshots in "
          "durability.folder; allowed is a file system with locks, such as NFS of version 4 or a local disk, or "
          "durability.mode: none"));
    }
    // RocksDB has no code of its own for it.
    if (status.IsIOError() && absl::StrContains(status.ToString(), "LOCK")) {
      return absl::AbortedError(
          absl::StrCat(folder.string(), ": another process has it open (", status.ToString(), ")"));
    }
    return FromRocks(folder, status);
  }
  std::unique_ptr<Database> database = std::make_unique<RocksDatabase>(folder, std::unique_ptr<rocksdb::DB>(opened));
  // What a crash has left.
  std::filesystem::remove_all(folder / kIncoming, error);
  if (!error) std::filesystem::create_directory(folder / kIncoming, error);
  if (error) return absl::UnavailableError(absl::StrCat((folder / kIncoming).string(), ": ", error.message()));
  Reserve(folder);
  return database;
}

}  // namespace slackline
