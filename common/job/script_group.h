// Group of a script's optimizer.
#pragma once

#include <string>

namespace slackline {

// Parameters with settings in place of the optimizer's own.
struct ScriptGroup {
  std::string name;  // for messages
  double lr_factor = 1;
  double weight_decay = 0;
};

}  // namespace slackline
