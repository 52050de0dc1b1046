// Fetches from an HTTP server that fails as it is told. prepared_store_test.cc tests how the cache and the store react.
#include "images/prepared/file_fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/images/broken_file_server.h"
#include "tests/images/test_data.h"

namespace slackline::images::file_fetch_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const FetchOptions kQuick{.silence_max = absl::Milliseconds(300), .give_up = absl::Seconds(2)};

class FileFetchTest : public ::testing::Test {
 protected:
  FileFetchTest() {
    const Bytes noise = Noise(300'000);
    body_.assign(noise.begin(), noise.end());
    server_.Serve("/p/file", body_);
  }
  std::string Address() const { return server_.Address("/p/file"); }
  std::string Path() const { return folder_ / "file.part"; }
  std::string Written() const {
    const Bytes bytes = ReadFile(Path());
    return {bytes.begin(), bytes.end()};
  }

  std::string body_;
  BrokenFileServer server_;
  TemporaryFolder folder_;
  FileFetch fetch_{kQuick};
};

TEST_F(FileFetchTest, AFileComesWholeOverOneConnection) {
  EXPECT_EQ(*fetch_.Get(Address(), 1 << 20), body_);
  ASSERT_TRUE(fetch_.Download(Address(), Path(), body_.size()).ok());
  EXPECT_EQ(Written(), body_);
  EXPECT_THAT(server_.ranges(), ElementsAre("", ""));
}

TEST_F(FileFetchTest, WhatBrokeOffGoesOnFromThere) {
  server_.BreakOff({100'000, 50'000, 0});
  ASSERT_TRUE(fetch_.Download(Address(), Path(), body_.size()).ok());
  EXPECT_EQ(Written(), body_);
  EXPECT_THAT(server_.ranges(), ElementsAre("", "bytes=100000-", "bytes=150000-", "bytes=150000-"));
}

TEST_F(FileFetchTest, APartOfAnEarlierProcessIsNotAskedForAgain) {
  WriteFile(Path(), Bytes(body_.begin(), body_.begin() + 1000));
  ASSERT_TRUE(fetch_.Download(Address(), Path(), body_.size()).ok());
  EXPECT_EQ(Written(), body_);
  EXPECT_THAT(server_.ranges(), ElementsAre("bytes=1000-"));
}

TEST_F(FileFetchTest, AServerWithoutRangesIsReadFromTheBeginning) {
  server_.KnowNoRanges();
  server_.BreakOff({100'000});
  ASSERT_TRUE(fetch_.Download(Address(), Path(), body_.size()).ok());
  EXPECT_EQ(Written(), body_);
}

TEST_F(FileFetchTest, APartThatDoesNotSayWhichItIsIsRefused) {
  const Bytes begun(body_.begin(), body_.begin() + 1000);
  const auto refusal = [&] {
    WriteFile(Path(), begun);
    const absl::Status status = fetch_.Download(Address(), Path(), body_.size());
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ReadFile(Path()), begun) << "nothing of it is taken";
    return std::string(status.message());
  };
  server_.ShiftRanges(1);
  EXPECT_THAT(refusal(),
              HasSubstr("/p/file: the server says 206 with Content-Range: bytes 1001-299999/300000; needed is "
                        "one that begins with bytes 1000-"));
  server_.KeepRangesToItself();
  EXPECT_THAT(refusal(), HasSubstr("206 with no Content-Range"));
}

TEST(EscapedPath, OnlyWhatMayStandInAnAddressStays) {
  EXPECT_EQ(EscapedPath("train-00000.images.npy"), "train-00000.images.npy");
  EXPECT_EQ(EscapedPath("a b/50%#1?.npy"), "a%20b/50%25%231%3F.npy");
  EXPECT_EQ(EscapedPath("\xc3\xa9+&:\n"), "%C3%A9%2B%26%3A%0A");
}

TEST_F(FileFetchTest, AServerThatIsBusyIsAskedAgain) {
  server_.Say({503, 500, 429});
  EXPECT_EQ(*fetch_.Get(Address(), 1 << 20), body_);
}

TEST_F(FileFetchTest, WhatStaysIsSaidAtOnce) {
  const auto missing = fetch_.Get(server_.Address("/p/none"), 100);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr(server_.Address("/p/none") + ": the server says 404"));
  server_.Say({403});
  EXPECT_EQ(fetch_.Get(Address(), 100).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(fetch_.Get(Address(), 100).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(fetch_.Download(Address(), Path(), 5).message()), HasSubstr("more than the 5 bytes"));
  EXPECT_THAT(std::string(fetch_.Download(Address(), folder_ / "b", body_.size() + 1).message()),
              HasSubstr("has 300000 bytes, index.json says 300001"));
  EXPECT_EQ(fetch_.Download(Address(), folder_ / "no/such", 5).code(), absl::StatusCode::kInternal);
}

TEST_F(FileFetchTest, WhoWatchesCanEndADownload) {
  server_.Hang();
  int asked = 0;
  const absl::Status status =
      fetch_.Download(Address(), Path(), body_.size(),
                      {.watch = [&] { return ++asked < 3 ? absl::OkStatus() : absl::CancelledError("told to stop"); }});
  EXPECT_EQ(status, absl::CancelledError("told to stop"));
  // The next download is another one.
  EXPECT_EQ(fetch_.Download(Address(), Path(), body_.size()).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(FileFetchTest, AServerThatSaysNothingIsGivenUpByName) {
  server_.Hang();
  const absl::Status status = fetch_.Download(Address(), Path(), body_.size());
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Address()));
  EXPECT_THAT(std::string(status.message()), HasSubstr("given up after 2s without a byte"));
}

TEST(FileFetch, WhereNobodyListensIsGivenUpByName) {
  FileFetch fetch({.silence_max = absl::Milliseconds(200), .give_up = absl::Milliseconds(300)});
  const absl::Status status = fetch.Get("http://127.0.0.1:1/x", 5).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("http://127.0.0.1:1/x: "));
}

}  // namespace
}  // namespace slackline::images::file_fetch_test
