// A disk that runs full after a set number of bytes, has no locks, or fails every append.
#pragma once

#include <errno.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <string.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

namespace slackline {

// Thread-safety: safe.
class FailingDisk : public rocksdb::FileSystemWrapper {
 public:
  FailingDisk() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}

  const char* Name() const override { return "FailingDisk"; }
  // Sets the number of bytes that may still be appended to files.
  void SetRoom(int64_t bytes) { room_ = bytes; }
  void SetBroken(bool broken) { broken_ = broken; }
  // Makes every LockFile() fail with ENOLCK while `lockless` is true, as NFS before version 4 does without lockd.
  void SetLockless(bool lockless) { lockless_ = lockless; }

  rocksdb::IOStatus LockFile(const std::string& path, const rocksdb::IOOptions& options, rocksdb::FileLock** lock,
                             rocksdb::IODebugContext* context) override {
    if (!lockless_) return target()->LockFile(path, options, lock, context);
    return rocksdb::IOStatus::IOError("While lock file: " + path, ::strerror(ENOLCK));
  }

  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* result,
                                    rocksdb::IODebugContext* context) override {
    std::unique_ptr<rocksdb::FSWritableFile> file;
    const rocksdb::IOStatus status = target()->NewWritableFile(path, options, &file, context);
    if (status.ok()) *result = std::make_unique<File>(*this, std::move(file));
    return status;
  }

 private:
  class File : public rocksdb::FSWritableFileOwnerWrapper {
   public:
    File(FailingDisk& disk, std::unique_ptr<rocksdb::FSWritableFile> file)
        : FSWritableFileOwnerWrapper(std::move(file)), disk_(disk) {}

    rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* context) override {
      const rocksdb::IOStatus allowed = disk_.Take(data.size());
      return allowed.ok() ? FSWritableFileOwnerWrapper::Append(data, options, context) : allowed;
    }
    rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                             const rocksdb::DataVerificationInfo&, rocksdb::IODebugContext* context) override {
      return Append(data, options, context);
    }

   private:
    FailingDisk& disk_;
  };

  rocksdb::IOStatus Take(size_t bytes) {
    if (broken_) return rocksdb::IOStatus::IOError("the disk is broken");
    if (room_.fetch_sub(static_cast<int64_t>(bytes)) >= static_cast<int64_t>(bytes)) return rocksdb::IOStatus::OK();
    return rocksdb::IOStatus::NoSpace("no space left on device");
  }

  std::atomic<int64_t> room_ = std::numeric_limits<int64_t>::max();
  std::atomic<bool> broken_ = false;
  std::atomic<bool> lockless_ = false;
};

}  // namespace slackline
