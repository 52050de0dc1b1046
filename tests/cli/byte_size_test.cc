// Sizes in bytes, as people write and read them.
#include "cli/base/byte_size.h"

#include <gtest/gtest.h>

namespace slackline::cli::byte_size_test {
namespace {

TEST(ByteSize, AreRenderedInPowersOf1024) {
  EXPECT_EQ(RenderBytes(812), "812 B");
  EXPECT_EQ(RenderBytes(1536), "1.5 KiB");
  EXPECT_EQ(RenderBytes(uint64_t{5} << 50), "5120.0 TiB");
}

TEST(ByteSize, AreReadWithAnyUnit) {
  EXPECT_EQ(ParseBytes("812"), 812u);
  EXPECT_EQ(ParseBytes("8GB"), 8'000'000'000u);
  EXPECT_EQ(ParseBytes("1.5gib"), 1'610'612'736u);
  EXPECT_EQ(ParseBytes("1024TiB"), uint64_t{1} << 50);
  for (const char* text :
       {"", "GB", "0", "0.5B", "-1", "1e9", "8XB", "8 GB", "1025TiB", "99999999999999999999", "1.2.3"}) {
    EXPECT_EQ(ParseBytes(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace slackline::cli::byte_size_test
