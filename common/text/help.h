// `--help` of every program: an example first, then the arguments and the options in named groups, then explanations.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace slackline {

// A command's own words for its help. Each text may be empty.
struct HelpText {
  // Command line that a beginner types.
  std::string example{};
  // Names of options such as "--set --quiet", or of subcommands. They come first.
  std::string most_used{};
  // Titles of further groups in their order, with the names of their options or subcommands. Options without a group
  // come last, before the help.
  std::vector<std::pair<std::string, std::string>> groups{};
  // Paragraphs behind the options, with an empty line between them. Lines that begin with a blank stay as they are.
  std::string text{};
  // Further command lines, one a line.
  std::string examples{};
};

// Gives `command` this help. Call it once all options and subcommands are added.
void SetHelp(CLI::App& command, const HelpText& help);

// Words that an option or argument allows, if it allows a few only (CLI::IsMember); else empty.
std::vector<std::string> AllowedWords(const CLI::Option& option);

}  // namespace slackline
