#include "common/text/member_name.h"

#include <string>

#include <gtest/gtest.h>

namespace slackline::member_name_test {
namespace {

TEST(MemberNameMistake, WhatIsPlainEverywhereIsAllowed) {
  for (const std::string& name : {std::string("ps-1"), std::string("worker_2.node"), std::string(64, 'a')}) {
    EXPECT_EQ(MemberNameMistake(name), "") << name;
  }
}

TEST(MemberNameMistake, EverythingElseIsNamed) {
  for (const std::string& name : {std::string(), std::string("a b/../c"), std::string("a,b"), std::string("\n"),
                                  std::string("\"x"), std::string(65, 'a')}) {
    EXPECT_NE(MemberNameMistake(name), "") << name;
  }
  EXPECT_EQ(MemberNameMistake("a b/../c"),
            "found the name 'a b/../c'; allowed are 1 to 64 letters, digits, '.', '_' and '-'");
}

}  // namespace
}  // namespace slackline::member_name_test
