// StartText: a command line that is proposed to the user.
#pragma once

#include <string>

namespace slackline::cli {

// A command line that starts a run, and takes more options between its two parts.
struct StartText {
  std::string head;
  std::string tail = {};  // arguments of the script

  std::string Whole() const { return head + tail; }
};

}  // namespace slackline::cli
