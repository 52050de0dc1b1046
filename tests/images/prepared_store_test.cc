// Copies of prepared images on a node's disk, and their sources.
#include "images/prepared/prepared_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <iostream>
#include <thread>

#include "common/storage/checksum.h"
#include "tests/images/broken_file_server.h"
#include "tests/images/test_data.h"

namespace slackline::images::prepared_store_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A file of `bytes` equal letters.
struct Letters {
  std::string text;
  PreparedFile file;

  Letters(char letter, uint64_t bytes)
      : text(bytes, letter), file{.name = std::string(1, letter), .bytes = bytes, .checksum = ChecksumOf(text)} {}

  FileCache::Fetch Fetch(std::atomic<int>* count = nullptr) const {
    return [this, count](const std::string& path) {
      if (count != nullptr) ++*count;
      WriteFile(path, Bytes(text.begin(), text.end()));
      return absl::OkStatus();
    };
  }
};

std::string TextOf(const std::string& path) {
  const Bytes bytes = ReadFile(path);
  return {bytes.begin(), bytes.end()};
}

FileCache OpenCache(const TemporaryFolder& folder, uint64_t bytes_max, absl::Duration patience = absl::Seconds(60)) {
  return *FileCache::Open({.folder = folder / "cache", .bytes_max = bytes_max, .patience = patience});
}

TEST(FileCache, AFileIsMadeOnceHoweverManyWantIt) {
  const TemporaryFolder folder;
  const Letters a('a', 100'000);
  std::atomic<int> fetched{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      // As processes have it: each opens the folder by itself.
      const FileCache cache = OpenCache(folder, 1 << 20);
      const auto held = cache.Get(a.file, a.Fetch(&fetched));
      ASSERT_TRUE(held.ok()) << held.status();
      EXPECT_EQ(TextOf(held->path), a.text);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fetched, 1);
}

TEST(FileCache, WhatWasNotUsedForLongestMakesRoom) {
  const TemporaryFolder folder;
  const FileCache cache = OpenCache(folder, 250);
  const Letters a('a', 100), b('b', 100), c('c', 100);
  std::atomic<int> fetched{0};
  const auto use = [&](const Letters& one) {
    const auto held = cache.Get(one.file, one.Fetch(&fetched));
    ASSERT_TRUE(held.ok()) << held.status();
    // Times of files have ticks: those that were used are made older than what comes.
    for (const auto& entry : fs::directory_iterator(folder / "cache")) {
      fs::last_write_time(entry.path(), entry.last_write_time() - std::chrono::seconds(10));
    }
  };
  for (const Letters* one : {&a, &b, &a, &c}) use(*one);
  EXPECT_EQ(fetched, 3);
  use(a);
  EXPECT_EQ(fetched, 3) << "b was older";
  use(b);
  EXPECT_EQ(fetched, 4);
}

TEST(FileCache, WhatIsInUseStaysAndTheErrorNamesTheSizes) {
  const TemporaryFolder folder;
  const FileCache cache = OpenCache(folder, 250);
  const Letters a('a', 100), b('b', 100), c('c', 100);
  const auto held_a = cache.Get(a.file, a.Fetch());
  {
    const auto held_b = cache.Get(b.file, b.Fetch());
    const auto none = OpenCache(folder, 250).Get(c.file, c.Fetch());
    EXPECT_EQ(none.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(none.status().message()), HasSubstr("data.cache.gigabytes_max: found 0.000 GB"));
  }
  EXPECT_TRUE(cache.Get(c.file, c.Fetch()).ok());
  EXPECT_EQ(TextOf(held_a->path), a.text);
}

TEST(FileCache, WhatOthersHaveInTheFolderStaysAndDoesNotCount) {
  const TemporaryFolder folder;
  const FileCache cache = OpenCache(folder, 250);
  const Letters a('a', 100), b('b', 100), c('c', 100);
  const std::vector<std::string> names = {"thesis.pdf", "2026-100-notes", "0123456789abcdeg-100-x", "train.npy.part"};
  for (const std::string& name : names) WriteFile(folder / ("cache/" + name), Bytes(300, 'x'));
  for (const Letters* one : {&a, &b, &c}) {
    const auto held = cache.Get(one->file, one->Fetch());
    EXPECT_TRUE(held.ok()) << held.status();
  }
  for (const std::string& name : names) EXPECT_EQ(fs::file_size(folder / ("cache/" + name)), 300u) << name;
}

TEST(FileCache, RoomIsTakenBeforeTheFirstByteComes) {
  const TemporaryFolder folder;
  const FileCache cache = OpenCache(folder, 150);
  const Letters a('a', 100), b('b', 100);
  absl::Status other;
  const auto held = cache.Get(a.file, [&](const std::string& path) {
    other = cache.Get(b.file, b.Fetch()).status();
    return a.Fetch()(path);
  });
  EXPECT_TRUE(held.ok()) << held.status();
  EXPECT_EQ(other.code(), absl::StatusCode::kResourceExhausted) << other;
}

TEST(FileCache, WrongBytesAreMadeOnceMoreAndThenAnError) {
  const TemporaryFolder folder;
  const FileCache cache = OpenCache(folder, 1000);
  const Letters a('a', 100), wrong('x', 100);
  std::atomic<int> fetched{0};
  const auto at_last = [&](const std::string& path) { return (fetched < 2 ? wrong : a).Fetch(&fetched)(path); };
  EXPECT_TRUE(cache.Get(a.file, at_last).ok());
  EXPECT_EQ(fetched, 3);
  const Letters b('b', 100);
  const auto never = cache.Get(b.file, wrong.Fetch());
  EXPECT_EQ(never.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(never.status().message()), HasSubstr("b is not what index.json says, 3 times"));
}

TEST(FileCache, OneThatAnotherMakesIsWaitedForAsLongAsItGrows) {
  const TemporaryFolder folder;
  const Letters a('a', 100);
  const FileCache cache = OpenCache(folder, 1000, absl::Milliseconds(200));
  const auto slow = [&](const std::string&) {
    const auto other = cache.Get(a.file, a.Fetch());
    EXPECT_EQ(other.status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(other.status().message()), HasSubstr("another process of this node holds the lock of "));
    return absl::UnavailableError("no more");
  };
  EXPECT_EQ(cache.Get(a.file, slow).status().code(), absl::StatusCode::kUnavailable);
}

TEST(FileCache, AFolderThatCannotBeMadeIsNamed) {
  const TemporaryFolder folder;
  WriteFile(folder / "file", {});
  EXPECT_THAT(std::string(FileCache::Open({.folder = folder / "file/cache"}).status().message()),
              HasSubstr("data.cache.folder: cannot make "));
}

fs::perms ModeOf(const std::string& path) { return fs::status(path).permissions(); }

TEST(FileCache, WhoeverMayWriteInTheFolderMayReadWhatIsInIt) {
  const mode_t before = ::umask(077);
  const std::pair<fs::perms, fs::perms> cases[] = {{fs::perms{0700}, fs::perms{0600}},
                                                   {fs::perms{0770}, fs::perms{0640}},
                                                   {fs::perms{0777}, fs::perms{0644}},
                                                   {fs::perms{0755}, fs::perms{0600}}};
  for (const auto& [folder_mode, file_mode] : cases) {
    const TemporaryFolder folder;
    const FileCache cache = OpenCache(folder, 1000);
    fs::permissions(folder / "cache", folder_mode);
    const Letters a('a', 100);
    const auto fetch = [&](const std::string& path) {
      const absl::Status made = a.Fetch()(path);
      fs::permissions(path, fs::perms{0600});  // as the file has it that was copied
      return made;
    };
    const auto held = cache.Get(a.file, fetch);
    EXPECT_TRUE(held.ok()) << held.status();
    if (!held.ok()) continue;
    for (const std::string& path : {held->path, held->path + ".lock", folder / "cache/lock"}) {
      EXPECT_EQ(ModeOf(path), file_mode) << path;
    }
  }
  ::umask(before);
}

TEST(FileCache, AnotherUserGoesOnWithTheFolder) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may become another user";
  const TemporaryFolder folder;
  const FileCache cache = OpenCache(folder, 250);
  fs::permissions(folder.path(), fs::perms{0711});
  fs::permissions(folder / "cache", fs::perms{0777});
  const Letters a('a', 100), b('b', 100);
  // What somebody has left who died over it.
  const std::string whole = cache.Get(b.file, b.Fetch())->path;
  fs::rename(whole, whole + ".part");
  const auto held = cache.Get(a.file, a.Fetch());
  ASSERT_TRUE(held.ok()) << held.status();
  constexpr uid_t kOther = 65534;
  const auto as_other = [&]() -> std::string {
    if (::setresuid(kOther, kOther, kOther) != 0) return "cannot become another user";
    const auto own = FileCache::Open({.folder = folder / "cache", .bytes_max = 250});
    if (!own.ok()) return own.status().ToString();
    const auto there = own->Get(a.file, [](const std::string&) { return absl::InternalError("it is there"); });
    if (!there.ok()) return there.status().ToString();
    return own->Get(b.file, b.Fetch()).status().ToString();
  };
  EXPECT_EXIT(
      {
        const std::string said = as_other();
        std::cerr << said;
        ::_exit(0);
      },
      testing::ExitedWithCode(0), "^OK$");
}

TEST(PreparedStore, AFolderIsReadOnceAndWhatDoesNotFitFromItself) {
  const TemporaryFolder folder;
  const Letters a('a', 100), b('b', 300);
  fs::create_directory(folder / "origin");
  WriteFile(folder / "origin/a", Bytes(a.text.begin(), a.text.end()));
  WriteFile(folder / "origin/b", Bytes(b.text.begin(), b.text.end()));
  const PreparedStoreOptions options{
      .path = folder / "origin", .cache_folder = folder / "cache", .cache_bytes_max = 250, .fetch = {}};
  auto store = PreparedStore::Open(options);
  ASSERT_TRUE(store.ok());
  const auto cached = store->Get(a.file);
  ASSERT_TRUE(cached.ok()) << cached.status();
  EXPECT_THAT(cached->path, HasSubstr("/cache/"));
  EXPECT_EQ(TextOf(cached->path), a.text);
  EXPECT_EQ(store->Get(b.file)->path, folder / "origin/b");
  fs::remove(folder / "origin/a");
  EXPECT_EQ(TextOf(PreparedStore::Open(options)->Get(a.file)->path), a.text);
  EXPECT_EQ(PreparedStore::Open({.path = folder / "origin"})->Get(a.file)->path, folder / "origin/a");
}

TEST(PreparedStore, AFailedCopyLeavesNoPart) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "origin");
  auto store = PreparedStore::Open(
      {.path = folder / "origin", .cache_folder = folder / "cache", .cache_bytes_max = 1000, .fetch = {}});
  ASSERT_TRUE(store.ok());
  const Letters a('a', 100);
  EXPECT_EQ(store->Get(a.file).status().code(), absl::StatusCode::kNotFound);
  for (const auto& entry : fs::directory_iterator(folder / "cache")) {
    EXPECT_NE(entry.path().extension(), ".part") << entry.path();
  }
}

TEST(PreparedStore, AServerIsReadOnceAndItsMistakesAreNamed) {
  const TemporaryFolder folder;
  BrokenFileServer server;
  const Letters a('a', 100'000), wrong('x', 100'000);
  server.Serve("/d/a", a.text);
  server.Serve("/d/b", wrong.text);
  server.BreakOff({30'000});
  PreparedStoreOptions options{.path = server.Address("/d"),
                               .cache_folder = folder / "cache",
                               .cache_bytes_max = 1'000'000,
                               .fetch = {.silence_max = absl::Seconds(5), .give_up = absl::Seconds(20)}};
  auto store = PreparedStore::Open(options);
  ASSERT_TRUE(store.ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(TextOf(store->Get(a.file)->path), a.text);
  EXPECT_EQ(server.bytes_sent(), 100'000u);
  const Letters b('b', 100'000);
  EXPECT_THAT(std::string(store->Get(b.file).status().message()),
              HasSubstr(options.path + ": b is not what index.json says, 3 times"));
  EXPECT_THAT(std::string(store->ReadIndex().status().message()), HasSubstr("/d/index.json: the server says 404"));
  server.Serve("/d/index.json", "{}");
  EXPECT_THAT(std::string(store->ReadIndex().status().message()), HasSubstr("/d/index.json: its 'format' is not"));
  options.cache_bytes_max = 5000;
  EXPECT_EQ(PreparedStore::Open(options)->Get(b.file).status().code(), absl::StatusCode::kResourceExhausted);
  options.cache_folder = "";
  EXPECT_EQ(PreparedStore::Open(options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PreparedStore, NamesOfFilesAreEscapedInAddresses) {
  const TemporaryFolder folder;
  BrokenFileServer server;
  Letters a('a', 100);
  a.file.name = "50% of #1?.npy";
  server.Serve("/d/50%25%20of%20%231%3F.npy", a.text);
  auto store = PreparedStore::Open({.path = server.Address("/d"),
                                    .cache_folder = folder / "cache",
                                    .cache_bytes_max = 1000,
                                    .fetch = {.silence_max = absl::Seconds(5), .give_up = absl::Seconds(20)}});
  ASSERT_TRUE(store.ok());
  const auto held = store->Get(a.file);
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_EQ(TextOf(held->path), a.text);
}

}  // namespace
}  // namespace slackline::images::prepared_store_test
