// main() of the test programs: GoogleTest's, with one argument more.
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

std::string FileOf(const testing::TestInfo& test) {
  const std::vector<std::string> parts = absl::StrSplit(test.file(), '/');
  return parts.back();
}

// A filter for all tests in these sources. False: a source has no tests, and stderr says which ones do.
bool FilterOf(const std::set<std::string>& sources, std::string* filter) {
  std::vector<std::string> tests;
  std::set<std::string> known;
  for (int s = 0; s < testing::UnitTest::GetInstance()->total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *testing::UnitTest::GetInstance()->GetTestSuite(s);
    std::vector<std::string> of_suite;
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      known.insert(FileOf(test));
      if (sources.contains(FileOf(test))) of_suite.push_back(absl::StrCat(suite.name(), ".", test.name()));
    }
    // GoogleTest shows its filter: where it can be, it is short.
    if (of_suite.size() == static_cast<size_t>(suite.total_test_count())) of_suite = {absl::StrCat(suite.name(), ".*")};
    tests.insert(tests.end(), of_suite.begin(), of_suite.end());
  }
  for (const std::string& source : sources) {
    if (known.contains(source)) continue;
    std::fprintf(stderr, "--sources: '%s' has no tests; allowed are %s\n", source.c_str(),
                 absl::StrJoin(known, ", ").c_str());
    return false;
  }
  *filter = absl::StrJoin(tests, ":");
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    absl::string_view sources = argv[i];
    if (!absl::ConsumePrefix(&sources, "--sources=")) {
      std::fprintf(stderr, "found '%s'; allowed are GoogleTest's own options and --sources=a_test.cc,b_test.cc\n",
                   argv[i]);
      return 2;
    }
    std::string filter;
    if (!FilterOf(absl::StrSplit(sources, ','), &filter)) return 2;
    // A --gtest_filter says more precisely which.
    if (GTEST_FLAG_GET(filter) == "*") GTEST_FLAG_SET(filter, filter);
  }
  return RUN_ALL_TESTS();
}
