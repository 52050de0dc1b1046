// Error messages for job files that are no YAML, or another YAML than was meant.
#include <gtest/gtest.h>

#include <string>

#include "common/job/job_file.h"

namespace slackline::job_syntax_test {
namespace {

struct Syntax {
  const char* name;
  const char* yaml;
  const char* message;
};

void PrintTo(const Syntax& syntax, std::ostream* out) { *out << syntax.name; }

class JobSyntax : public ::testing::TestWithParam<Syntax> {};

TEST_P(JobSyntax, IsExplained) {
  EXPECT_EQ(std::string(ParseJob(GetParam().yaml, "j.yaml").status().message()), GetParam().message);
}

const Syntax kSyntax[] = {
    {"StarWithoutQuotes", "optimizer:\n  groups:\n    - match: *.bias\n",
     "j.yaml:3: found a value that begins with *, which is an alias in YAML; allowed is that value in quotes "
     "(\"*.bias\")"},
    {"StarAlone", "wire: {groups: [{match: *, encoding: bf16}]}\n",
     "j.yaml:1: found a value that begins with *, which is an alias in YAML; allowed is that value in quotes "
     "(\"*.bias\")"},
    {"PercentWithoutQuotes", "seed: 1\nname: %x\n",
     "j.yaml:2: found '%' at the beginning of a value; allowed is that value in quotes"},
    {"QuoteThatIsNeverClosed", "data:\n  path: \"/d\ntraining:\n  epochs: 9\n",
     "j.yaml:2: found a quote (\") that is never closed"},
    {"SingleQuoteThatIsNeverClosed", "\xef\xbb\xbfseed: 1\r\nname: 'it''s\r\n",
     "j.yaml:2: found a quote (') that is never closed"},
    {"PathOfTwoLines", "data:\n  path: |\n    /d\n",
     "j.yaml:2: data.path: found the text \"/d\\n\"; allowed is text of one line"},
    {"NoSpaceBehindAKey", "training:\n  epochs:3\n",
     "j.yaml:1: training: found 'epochs:3'; allowed is a section of keys: epochs, batch_size, evaluation_batch_size, "
     "evaluate_every_epochs, accumulate, batch, batch_size_min, early_stopping, label_smoothing, class_weights, loss, "
     "self_supervised, evaluate_every_samples, metric, tokens_per_sample; behind 'epochs:' there must be a space"},
    {"NoSpaceBehindAKeyInBraces", "training: {epochs:3}\n",
     "j.yaml:1: found the unknown key 'training.epochs:3'; behind 'epochs:' there must be a space"},
    {"KeyAsInSet", "optimizer.schedule.kind: cosine\n",
     "j.yaml:1: found the unknown key 'optimizer.schedule.kind'; 'kind' is written below 'schedule:', dots are for "
     "--set"},
    {"KeysOfOtherDepths", "training:\n    epochs: 3\n  batch_size: 4\n",
     "j.yaml:3: found a line that is no KEY: VALUE of the section above it; allowed are keys as deep as each other, "
     "with ': ' behind them"},
    {"KeyBelowAValue", "training:\n  epochs: 3\n   batch_size: 4\n",
     "j.yaml:3: found a ':' where no key may be; allowed is one KEY: VALUE a line, the keys of a section as deep as "
     "each other, and text with ': ' in it in quotes"},
    {"BraceThatIsNotClosed", "training: {epochs: 3\n",
     "j.yaml:2: found no ',' or '}' where one must be; allowed is {KEY: VALUE, KEY: VALUE}"},
    {"BackslashInDoubleQuotes", "data: {path: \"C:\\data\"}\n",
     "j.yaml:1: found '\\d' in double quotes; allowed are YAML's escapes, where a backslash is \\\\, or single "
     "quotes"},
    {"EndsOfOldMacs", "name: x\rtraining:\r  epochs: 3\r",
     "j.yaml:1: found lines that end with CR alone; allowed are LF, and CR with LF"},
    {"SectionsOfAnotherFormat", "[training]\nepochs = 3\n",
     "j.yaml:2: found more behind what is whole; allowed are KEY: VALUE alone"},
    {"OfAnotherEncoding", "\xff\xfen", "j.yaml:1: found text in UTF-16; allowed is UTF-8"},
    {"HomeFolder", "data: {path: ~/d}\ncheckpoint: {folder: '~'}\n",
     "j.yaml:1: data.path: found '~/d'; allowed is a path with the name of the home folder in the place of ~, which "
     "only shells know\n"
     "j.yaml:2: checkpoint.folder: found '~'; allowed is a path with the name of the home folder in the place of ~, "
     "which only shells know"},
};

INSTANTIATE_TEST_SUITE_P(Table, JobSyntax, ::testing::ValuesIn(kSyntax),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(JobText, QuotesThatAreClosedAreText) {
  const auto job = ParseJob(
      "\xef\xbb\xbf# \xc3\xa4 'a\r\nname: 'x' # \"b\r\ndata: {path: \"/d \\\" '\"}\r\nseed: 1 # '\r\n", "j.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name(), "x");
  EXPECT_EQ(job->data().path(), "/d \" '");
  EXPECT_EQ(ParseJob("data: {path: 'it''s \\'}\n", "j.yaml")->data().path(), "it's \\");
}

}  // namespace
}  // namespace slackline::job_syntax_test
