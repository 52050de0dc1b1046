#include "common/base/parameter_groups.h"

#include <fnmatch.h>

#include <random>

#include <gtest/gtest.h>
#include "absl/strings/str_cat.h"

namespace slackline::parameter_groups_test {
namespace {

TEST(MatchesName, StarsAndQuestionMarksStandForOthers) {
  for (const char* pattern : {"*", "*.bias", "fc1.*", "fc?.bias", "f*1*s", "fc1.bias", "fc1.bias*", "**.???s"}) {
    EXPECT_TRUE(MatchesName(pattern, "fc1.bias")) << pattern;
  }
  for (const char* pattern : {"", "?", "fc1", "*.bia", "fc??.bias", "FC1.bias", "fc1.bias?"}) {
    EXPECT_FALSE(MatchesName(pattern, "fc1.bias")) << pattern;
  }
  EXPECT_TRUE(MatchesName("", ""));
  EXPECT_TRUE(MatchesName("*", "a/b"));
}

TEST(MatchesName, AllElseStandsForItself) {
  EXPECT_FALSE(MatchesName("fc[12].bias", "fc1.bias"));
  EXPECT_TRUE(MatchesName("fc[12].bias", "fc[12].bias"));
  EXPECT_FALSE(MatchesName("fc\\*", "fc1"));
  EXPECT_TRUE(MatchesName("fc\\*", "fc\\1"));
}

TEST(MatchesName, EqualsTheSystemsForTheseTwo) {
  std::mt19937 random(3);
  const auto draw = [&random](const std::string& letters) {
    std::string text;
    for (uint32_t i = random() % 9; i > 0; --i) text.push_back(letters[random() % letters.size()]);
    return text;
  };
  for (int i = 0; i < 20000; ++i) {
    const std::string pattern = draw("ab*?"), name = draw("ab");
    ASSERT_EQ(MatchesName(pattern, name), ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0) << pattern << " " << name;
  }
}

TEST(MatchesName, ManyStarsTakeNoTime) {
  EXPECT_FALSE(MatchesName(absl::StrCat(std::string(400, '*'), "b"), std::string(4000, 'a')));
  std::string pattern;
  for (int i = 0; i < 200; ++i) absl::StrAppend(&pattern, "*a");
  EXPECT_FALSE(MatchesName(pattern + "b", std::string(4000, 'a')));
}

TEST(FirstNames, ManyAreCutShort) {
  EXPECT_EQ(FirstNames({"a", "b"}), "a, b");
  EXPECT_EQ(FirstNames(std::vector<std::string>(10, "a")), "a, a, a, a, a, a, a, a, a, a");
  EXPECT_EQ(FirstNames(std::vector<std::string>(12, "a")), "a, a, a, a, a, a, a, a, a, a and 2 more");
}

}  // namespace
}  // namespace slackline::parameter_groups_test
