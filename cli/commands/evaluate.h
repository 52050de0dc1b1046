// `slackline evaluate`: measures the quality of weights on a job's images.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace slackline::cli {

// Command-line options of `slackline evaluate`, and the command itself.
//
// Thread-safety: none.
class EvaluateCommand {
 public:
  // Adds the command to `app`, which must outlive it.
  explicit EvaluateCommand(CLI::App& app);

  bool parsed() const;
  // Evaluates the weights. Returns the exit code.
  int Run() const;

 private:
  std::string target_;
  std::string weights_;
  std::string checkpoint_;
  std::string split_;
  std::string out_;
  std::vector<std::string> overrides_;
  CLI::App* command_ = nullptr;
};

}  // namespace slackline::cli
