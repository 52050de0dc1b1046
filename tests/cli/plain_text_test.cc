#include "cli/help/plain_text.h"

#include <gtest/gtest.h>

namespace slackline::cli::plain_text_test {
namespace {

using help::PlainText;

TEST(PlainText, ShowsHeadingsAndWrapsParagraphs) {
  EXPECT_EQ(PlainText("# A page\n\nSome *words*\nand **more**.\n\n## Next\n\nEnd.\n"),
            "A page\n======\n\nSome words and more.\n\nNext\n----\n\nEnd.\n");
}

TEST(PlainText, LinksBecomeTheirTextAndPicturesGo) {
  EXPECT_EQ(PlainText("See [`slackline resume`](resume.md#a) and [that [1]](x.md).![a picture](p.svg)\n"),
            "See `slackline resume` and that [1].\n");
}

TEST(PlainText, CodeStaysAsItIs) {
  EXPECT_EQ(PlainText("Run:\n\n```sh\nls *.yaml   # [all](x)\n\n# done\n```\nThen `a*b*c`.\n"),
            "Run:\n\n    ls *.yaml   # [all](x)\n\n    # done\nThen `a*b*c`.\n");
}

TEST(PlainText, ListsKeepTheirIndents) {
  EXPECT_EQ(PlainText("- one\n  two\n  - three\n1. four\n"), "- one two\n  - three\n1. four\n");
}

TEST(PlainText, NarrowTablesHaveColumns) {
  EXPECT_EQ(PlainText("| a | long title |\n|---|---|\n| `x\\|y` | 1 |\n"),
            "  a       long title\n  -----   ----------\n  `x|y`   1\n");
}

TEST(PlainText, WideTablesBecomeLists) {
  const std::string words = "many words that fill more than the half of a line of a terminal";
  EXPECT_EQ(PlainText("| name | use | since |\n|---|---|---|\n| n | " + words + " | " + words + " |\n| m | u | |\n"),
            "  n\n      use: " + words + "\n      since: " + words + "\n\n  m\n      use: u\n");
}

TEST(PlainText, CommentsAndHtmlAreLeftOut) {
  EXPECT_EQ(PlainText("One.\n<!-- a\ncomment -->\n<picture>\n</picture>\n\nTwo.\n"), "One.\n\nTwo.\n");
}

}  // namespace
}  // namespace slackline::cli::plain_text_test
