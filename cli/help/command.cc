#include "cli/help/command.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/base/complain.h"
#include "cli/base/sibling.h"
#include "cli/help/completion.h"
#include "cli/help/plain_text.h"
#include "cli/help/topics.h"
#include "common/text/help.h"
#include "common/text/nearest_word.h"
#include "common/text/wrap_text.h"

namespace slackline::cli::help {
namespace {

// The shell knows the variable, and reads it as a command. -F: a text that fits ends at once; -R: colours pass; -X: it
// stays.
constexpr char kPager[] = "LESS=${LESS:-FRX}; export LESS; eval \"${PAGER:-$(command -v less || echo cat)}\"";

// Writes `text` to standard output. On a terminal it goes through the user's pager ($PAGER, or less); if that cannot be
// started, the text appears without one.
void Show(const std::string& text) {
  std::fflush(stdout);
  FILE* const pager = ::isatty(STDOUT_FILENO) ? ::popen(kPager, "w") : nullptr;
  if (pager == nullptr) {
    std::fputs(text.c_str(), stdout);
    return;
  }
  // A reader may leave before the end.
  ::signal(SIGPIPE, SIG_IGN);
  std::fputs(text.c_str(), pager);
  constexpr int kNoProgram = 126;
  const int status = ::pclose(pager);
  if (status != -1 && WIFEXITED(status) && WEXITSTATUS(status) >= kNoProgram) std::fputs(text.c_str(), stdout);
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Topic& topic : Topics()) names.emplace_back(topic.name);
  return names;
}

// The first heading of the page.
absl::string_view Title(const Topic& topic) {
  const size_t begin = topic.markdown.find("# ") + 2;
  return topic.markdown.substr(begin, topic.markdown.find('\n', begin) - begin);
}

std::string List() {
  std::string list = "Topics:\n";
  for (const Topic& topic : Topics()) absl::StrAppendFormat(&list, "  %-18s%s\n", topic.name, Title(topic));
  return absl::StrCat(list, "\nShow one with: slackline help TOPIC\n",
                      "Show the options of a command with: slackline COMMAND --help\n");
}

int ShowTopic(const CLI::App& app, const std::string& wanted) {
  if (wanted.empty()) {
    Show(List());
    return kExitDone;
  }
  for (const Topic& topic : Topics()) {
    if (topic.name != wanted) continue;
    Show(PlainText(topic.markdown));
    return kExitDone;
  }
  std::vector<std::string> known = Names();
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == wanted) {
      // Some commands are programs of their own, which know their options.
      return Complain(Become("/proc/self/exe", {wanted, "--help"}));
    }
    known.push_back(command->get_name());
  }
  const std::string nearest = NearestWord(wanted, known);
  std::fprintf(stderr, "slackline help: found the unknown topic '%s'%s\n%s", wanted.c_str(),
               nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?").c_str(),
               WrapText(absl::StrCat("Topics: ", absl::StrJoin(Names(), ", ")), "", "  ").c_str());
  return kExitWrongUse;
}

}  // namespace

AddedCommand AddHelp(CLI::App& app, const char* /*program*/) {
  const auto wanted = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("help", "Explain a topic, or list the topics");
  command->add_option("TOPIC", *wanted, "Name of a topic or of a command. Without it, the topics are listed")
      ->type_name(absl::StrCat("TEXT:{", absl::StrJoin(Names(), ","), "}"));
  SetHelp(*command,
          {.example = "slackline help resume",
           .text = "The pages are those of docs/, as they were when this program was built. On a terminal they appear "
                   "in your pager ($PAGER, or less).",
           .examples = "slackline help\nslackline help run-folder | grep csv"});
  return {command, [&app, wanted] { return ShowTopic(app, *wanted); }};
}

AddedCommand AddCompletion(CLI::App& app, const char* /*program*/) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completion", "Print a script that completes commands in your shell");
  command->add_option("SHELL", *shell, "Your shell: bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  SetHelp(*command,
          {.example = "eval \"$(slackline completion bash)\"",
           .text = "The script completes commands, options, and words that an option allows. An installed Slackline "
                   "brings the scripts along.",
           .examples = "slackline completion zsh >~/.zfunc/_slackline\n"
                       "slackline completion fish >~/.config/fish/completions/slackline.fish"});
  return {command, [&app, shell] {
            std::fputs(CompletionScript(app, *shell).c_str(), stdout);
            return kExitDone;
          }};
}

}  // namespace slackline::cli::help
