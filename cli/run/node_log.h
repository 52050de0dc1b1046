// One log of the scripts of a node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace slackline::cli {

// Cuts what a script writes into whole lines, and begins each with the script's local rank: "[0] loss 2.5".
//
// Lines end with \n or, as those of progress bars, with \r. Lines of JSON (output.log_format) are left as they are. A
// script that writes no end of line gets one every kLineBytesMax.
//
// Thread-safety: none.
class ScriptLines {
 public:
  static constexpr size_t kLineBytesMax = 65536;

  explicit ScriptLines(uint32_t rank);

  // Returns the lines that are whole after the script has written `bytes`.
  std::string Add(absl::string_view bytes);
  // Returns the line that the script has not ended, with an end.
  std::string Rest();

  // Returns the last line of the last traceback of Python, such as "ValueError: no more"; empty if there is none.
  const std::string& exception() const { return exception_; }

 private:
  void Append(absl::string_view line, std::string& out);

  const std::string begin_;
  std::string unended_;
  bool in_traceback_ = false;
  std::string exception_;
};

// Pipes into which scripts write, and a thread that copies their lines to one log.
//
// Thread-safety: none.
class NodeLog {
 public:
  // Makes a named pipe in `folder` for each of `scripts`. `log` is the file descriptor of the log, and stays the
  // caller's.
  //   kUnavailable  the system refused
  static absl::StatusOr<std::unique_ptr<NodeLog>> Open(const std::filesystem::path& folder, uint32_t scripts, int log);
  NodeLog(const NodeLog&) = delete;
  NodeLog& operator=(const NodeLog&) = delete;
  ~NodeLog() { Close(); }

  // Path of the pipe of that script: its standard output and standard error.
  std::filesystem::path PipeOf(uint32_t rank) const;

  // Copies what the scripts have written until now, and no more after that.
  void Close();
  // Returns ScriptLines::exception() of that script. Close() comes first.
  const std::string& ExceptionOf(uint32_t rank) const { return lines_[rank].exception(); }

 private:
  NodeLog(std::filesystem::path folder, int log) : folder_(std::move(folder)), log_(log) {}
  void Copy();
  // Copies what is in the pipe of that script. Returns false once nobody can write to it.
  bool CopyFrom(size_t rank);

  const std::filesystem::path folder_;
  const int log_;
  std::vector<ScriptLines> lines_;
  // Ends of the pipes to read from.
  std::vector<int> pipes_;
  // Eventfd, readable once this object is to end.
  int end_ = -1;
  std::thread thread_;
};

}  // namespace slackline::cli
