#include "cli/help/pager.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

namespace slackline::cli::help {
namespace {

// The shell knows the variable, and reads it as a command. -F: a text that fits ends at once; -R: colours pass; -X: it
// stays.
constexpr char kPager[] = "LESS=${LESS:-FRX}; export LESS; eval \"${PAGER:-$(command -v less || echo cat)}\"";

}  // namespace

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

}  // namespace slackline::cli::help
